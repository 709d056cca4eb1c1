-- Changes the mode of a guard, waiting out open writers of the table. Runs as the caller, who must own the table.
-- Locks: see fence.protect. Codes: LF010 not protected, 42501, 55P03.
create function fence.set_mode(p_table regclass, p_mode text) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_mode is null then
    perform fence._raise('LF010', 'a mode is needed', 'The mode is null.', 'Pass ''enforce'' or ''observe''.', p_table);
  end if;
  perform fence._check_choice('p_mode', p_mode, array['enforce', 'observe']);
  perform fence._template_of(p_table);
  perform fence._check_table(p_table);
  perform fence._change_guard(p_table, 'share row exclusive',  -- what the template is, and whether there is one, is known only then
    format('select fence._define_guard(%L, fence._template_of(%L), %L, null, null, null, null, null, null)', p_table::oid, p_table::oid, p_mode));
  perform fence._refuse_null_keys(p_table);
end
$$;

comment on function fence.set_mode(regclass, text) is 'Changes the mode of a guard. LF010, 42501, 55P03.';
