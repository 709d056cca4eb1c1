-- Changes the mode of a guard, waiting out open writers of the table. Runs as the caller, who must own the table.
-- Locks: the table SHARE ROW EXCLUSIVE (tries of one second each). Codes: LF010 not protected, 42501, 55P03.
create function fence.set_mode(p_table regclass, p_mode text) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_mode is null then
    perform fence._raise('LF010', 'a mode is needed', 'The mode is null.', 'Pass ''enforce'' or ''observe''.', p_table);
  end if;
  perform fence._template_of(p_table);
  perform fence._lock_table(p_table, 'share row exclusive');  -- what the template is, and whether there is one, is known only now
  perform fence.protect(p_table, fence._template_of(p_table), p_mode);
end
$$;

comment on function fence.set_mode(regclass, text) is 'Changes the mode of a guard. LF010, 42501, 55P03.';
