-- The claim on a resource within the claims of a transaction: {token, secret, sequence} as text, or null.
create function fence._claim_on(p_claims text, p_resource text) returns text[]
language plpgsql
stable
as $$
declare
  v_key text := E'\n' || fence._hex(p_resource) || ' ';
  v_start integer := pg_catalog.strpos(p_claims, v_key);
begin
  if v_start > 0 then
    return pg_catalog.string_to_array(
      pg_catalog.split_part(pg_catalog.substr(p_claims, v_start + pg_catalog.length(v_key)), E'\n', 1), ' ');
  end if;
  return null;
end
$$;
