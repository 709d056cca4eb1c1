-- Ends an exemption: from the commit on the role's writes are refused like everybody's. Runs as the caller, who must be able to act as the table's owner.
-- Locks: the table SHARE ROW EXCLUSIVE (waits out open writers; tries of one second each, then 55P03).
-- Codes: LF010 not protected, or not exempt; 42501 not the owner; 55P03 the table, or an exempt of that role, stayed busy.
create function fence.unexempt(p_table regclass, p_role regrole) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform fence._template_of(p_table);
  perform fence._change_guard(p_table, 'share row exclusive', format('select fence._end_exemption(%L, %L)', p_table::oid, p_role::oid));
end
$$;

comment on function fence.unexempt(regclass, regrole) is 'Ends an exemption, waiting out open writers of the table. LF010, 42501, 55P03.';
