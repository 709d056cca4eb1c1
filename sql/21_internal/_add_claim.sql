-- Claims with one more in front, in place of an earlier one on the same resource, for fence._claims to read; unchanged if the same claim
-- is there. p_claims null: the first. A secret never holds a blank; one that does is made wrong, not taken apart.
create function fence._add_claim(p_claims text, p_resource text, p_token bigint, p_secret text, p_sequence bigint) returns text
language plpgsql
stable
as $$
declare
  v_key text := E'\n' || fence._claim_key(p_resource) || ' ';
  v_item text := v_key || p_token || ' ' || pg_catalog.translate(p_secret, E' \n', '__') || ' '
    || coalesce(p_sequence::text, '-') || E'\n';
  v_xact text := pg_catalog.pg_current_xact_id()::text;
begin
  if p_claims is null then
    return v_xact || v_item;
  elsif pg_catalog.strpos(p_claims, v_item) > 0 then
    return p_claims;
  end if;
  p_claims := pg_catalog.replace(p_claims, v_key || pg_catalog.split_part(fence._claim_on(p_claims, p_resource), E'\n', 1) || E'\n', E'\n');
  return v_xact || v_item || pg_catalog.substr(p_claims, pg_catalog.length(v_xact) + 2);
end
$$;
