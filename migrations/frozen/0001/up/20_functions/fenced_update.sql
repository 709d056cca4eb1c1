-- Updates one row under a claim, in one statement: presents the claim and writes. 1, or 0 where there is no such row (or the
-- caller's row security hides it); with inheritance children, whose keys are unique in each table only, as many as have the key. p_key must be exactly a unique
-- key of a protected table.
-- Runs with the caller's own grants, row security and search_path; every name in it is qualified,
-- the types of its variables too.
-- Locks, in order: the lease row FOR KEY SHARE, then the row. Codes: LF010 bad argument, and those of present and the guard.
create function fence.fenced_update(
  p_table regclass,
  p_key jsonb,
  p_changes jsonb,
  p_resource text,
  p_token bigint,
  p_secret text,
  p_sequence bigint default null
) returns bigint
language plpgsql
volatile
as $$
declare
  v_statement pg_catalog.text := fence._update_statement(p_table, p_key, p_changes);
  v_rows pg_catalog.int8;
begin
  perform fence.present(p_resource, p_token, p_secret, p_sequence);
  execute v_statement using p_key, p_changes;
  get diagnostics v_rows = row_count;
  return v_rows;
end
$$;

comment on function fence.fenced_update(regclass, jsonb, jsonb, text, bigint, text, bigint) is
  'Updates one row by its unique key under a claim; 1, or 0 for no such row. LF001, LF002, LF005, LF006, LF010.';
