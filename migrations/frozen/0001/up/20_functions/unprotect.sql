-- Takes the guard off a table. Runs as the caller, who must own the table.
-- Locks: the table ACCESS EXCLUSIVE (tries of one second each). Codes: LF010 not protected, 42501, 55P03.
create function fence.unprotect(p_table regclass) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform fence._template_of(p_table);
  perform fence._change_guard(p_table, 'access exclusive', format('select fence._undefine_guard(%L)', p_table::oid));
end
$$;

comment on function fence.unprotect(regclass) is 'Takes the guard off a table. LF010, 42501, 55P03.';
