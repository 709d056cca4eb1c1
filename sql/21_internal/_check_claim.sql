-- LF010 unless the three parts of a claim are there. Whether they are right is fence._verdict's to say.
create function fence._check_claim(p_resource text, p_token bigint, p_secret text) returns void
language plpgsql
stable
as $$
begin
  perform fence._check_resource(p_resource);
  if p_token is null or p_secret is null then
    perform fence._raise('LF010', 'a claim needs a token and a secret',
      pg_catalog.format('The %s is null.', case when p_token is null then 'token' else 'secret' end),
      pg_catalog.format('Pass the token and the secret that acquire returned: select * from fence.acquire(%L);', p_resource));
  end if;
end
$$;
