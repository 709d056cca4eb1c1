-- The setting fence.claims without its claim on p_resource: presenting again replaces.
create function fence._without_claim(p_claims text, p_resource text) returns text
language plpgsql
stable
as $$
begin
  if pg_catalog.strpos(p_claims, E'\n' || fence._hex(p_resource) || ' ') = 0 then
    return p_claims;
  end if;
  return (
    select pg_catalog.string_agg(i.item, E'\n' order by i.ordinal)
    from pg_catalog.string_to_table(p_claims, E'\n') with ordinality i (item, ordinal)
    where not pg_catalog.starts_with(i.item, fence._hex(p_resource) || ' ')
  );
end
$$;
