-- For a write under the leases of single rows, where the table has a covering resource too: no covering lease was granted since any of them. Whoever is
-- granted it waits for this transaction. The rows' own leases have been checked.
-- Locks: the row of fence._covering FOR KEY SHARE, until the transaction ends.
-- Codes: LF001 superseded by a covering lease, LF013 the row is gone; 40001 for a snapshot older than the covering grant, or than the guard.
create function fence._check_covering(p_table oid, p_covering text, p_names text[]) returns void
language plpgsql
volatile
as $$
declare
  v_claims text := fence._claims();
  v_granted bigint;
  v_name text;
  v_token text;
begin
  if p_names = '{}' then
    return;
  end if;
  select c.token into v_granted from fence._covering c where c.resource = p_covering for key share;
  if not found then
    perform from fence._covering c where c.resource = '' for key share;  -- 40001 for a snapshot that does not know what covers what
    perform fence._refuse_broken(p_table, 'its covering resource is lost');
    return;
  end if;
  foreach v_name in array p_names loop
    v_token := pg_catalog.split_part(fence._claim_on(v_claims, v_name), ' ', 1);
    if v_token <> '' and v_token::bigint <= v_granted and not fence._passes(p_table, 'LF001', v_name) then
      perform fence._refuse_claim('LF001', v_name, v_token, p_table);
    end if;
  end loop;
end
$$;
