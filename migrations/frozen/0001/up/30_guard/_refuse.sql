-- Why fence._check_lease did not accept a claim on a resource, in words; the lease row, if there is a claim on it, is locked by now.
-- Raises, unless the writer may pass.
create function fence._refuse(p_table oid, p_resource text) returns void
language plpgsql
volatile
as $$
declare
  v_token text := pg_catalog.split_part(fence._claim_on(fence._claims(), p_resource), ' ', 1);
  v_code text := coalesce(fence._refusal(p_resource, 'reject'), 'LF002');
begin
  if fence._passes(p_table, v_code, p_resource) then
    return;
  elsif v_code = 'LF004' then
    perform fence._refuse_unclaimed(p_table);
  elsif v_code = 'LF005' then
    perform fence._refuse_uncovered(p_table, p_resource);
  elsif v_code = 'LF006' and not exists (select from fence._lease l where l.resource = p_resource) then
    perform fence._refuse_unknown(p_resource, p_table);
  elsif v_code <> 'LF002' then
    perform fence._refuse_claim(v_code, p_resource, v_token, p_table);
  end if;
  perform fence._refuse_expired(p_resource, v_token, p_table);
end
$$;
