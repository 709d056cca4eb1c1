-- Guards a table: from the commit on, every write to it must present the current token of the resource it touches.
-- p_resource is a name (table scope) or a template over the table's columns (row scope). Idempotent; protecting again
-- changes the guard without a moment's gap. A parameter left null keeps its present value, or takes the default ('' takes
-- p_covering or p_token_column away). A covering resource that is added or changed loses its present lease.
-- Runs as the caller, who must own the table. The registry and the generated function are a private definer's.
-- Locks: the table SHARE ROW EXCLUSIVE (waits out open writers; tries of one second each, then 55P03); while it is held,
-- a row scope over nullable columns reads the table once.
-- Codes: LF010 bad argument, 42501 not the owner, 55P03 the table stayed busy.
create function fence.protect(
  p_table regclass,
  p_resource text,
  p_mode text default null,
  p_expiry text default null,
  p_writes text default null,
  p_inserts text default null,
  p_covering text default null,
  p_token_column name default null,
  p_uncatchable boolean default null
) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_statement text;
  v_null_keys text;
  v_found boolean;
begin
  perform fence._check_choice('p_mode', p_mode, array['enforce', 'observe']);
  perform fence._check_choice('p_expiry', p_expiry, array['reject', 'until_superseded']);
  perform fence._check_choice('p_writes', p_writes, array['many', 'once', 'sequenced']);
  perform fence._check_choice('p_inserts', p_inserts, array['check', 'allow']);
  perform fence._check_table(p_table);
  perform fence._lock_table(p_table, 'share row exclusive');
  for v_statement in select fence._define_guard(p_table, p_resource, p_mode, p_expiry, p_writes, p_inserts, p_covering, p_token_column,
    p_uncatchable)
  loop
    execute v_statement;
  end loop;

  v_null_keys := fence._null_keys(p_table);
  if v_null_keys is not null then
    execute format('select exists (select from %s where %s)', p_table, v_null_keys) into v_found;
    if v_found then
      perform fence._raise('LF010', format('%s holds rows whose key is null', p_table),
        'No resource could be named for them, so nobody could write them.',
        format('Give them a key, or delete them, and try again. To see them: select * from %s where %s;', p_table, v_null_keys), p_table);
    end if;
  end if;
end
$$;

comment on function fence.protect(regclass, text, text, text, text, text, text, name, boolean) is
  'Guards a table: every write must present the current token of the resource it touches. LF010, 42501, 55P03.';
