-- Arms again what audit() reports as fixable (its remedy is this call), on one table or on every protected table that the session may act as owner of.
-- Policies are never changed. Returns how many guards it armed. Runs as the caller. A named table that cannot be repaired
-- raises; without a name, the reason is a NOTICE, and the others are repaired all the same: each guard is all or nothing.
-- Locks: per faulty table those of fence.protect, until the transaction ends (tries of one second each; none after the first table, so
-- that it waits with none in hand).
-- Codes: LF010 not protected, or not fixable; 42501 not the owner; 55P03 the table stayed busy.
create function fence.repair(p_table regclass default null) returns bigint
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
as $$
declare
  v_table regclass;
  v_armed bigint := 0;
  v_message text;
  v_hint text;
begin
  for v_table in select fence._repairs(p_table) loop
    begin
      perform fence._change_guard(v_table, 'share row exclusive', format('select fence._rearm(%L)', v_table::oid),
        v_armed = 0);  -- later it holds a table, whose writers may have this one
      v_armed := v_armed + 1;
    exception when others then
      if p_table is not null then
        raise;
      end if;
      get stacked diagnostics v_message = message_text, v_hint = pg_exception_hint;
      if sqlstate = '55P03' then
        v_hint := format('select fence.repair(%L);', v_table);
      end if;
      raise notice '% was not repaired: % (%)', v_table, v_message, sqlstate using hint = v_hint;
    end;
  end loop;
  if v_armed = 0 and p_table is not null and not exists (select from pg_class c where c.oid = p_table) then  -- dropped while we looked
    perform fence._template_of(p_table);
  end if;
  return v_armed;
end
$$;

comment on function fence.repair(regclass) is
  'Arms again the guards that audit() reports as fixable, of one table or of all that the session may act as owner of. LF010, 42501, 55P03.';
