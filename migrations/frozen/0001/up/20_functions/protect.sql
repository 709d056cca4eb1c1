-- Guards a table: from the commit on, every write to it must present the current token of the resource it touches.
-- p_resource is a name (table scope) or a template over the table's columns (row scope). Idempotent; protecting again
-- changes the guard without a moment's gap. A parameter left null keeps its present value, or takes the default ('' takes
-- p_covering or p_token_column away). A covering resource that is added or changed loses its present lease.
-- Runs as the caller, who must own the table. The registry and the generated function are a private definer's.
-- Locks: the table SHARE ROW EXCLUSIVE (waits out open writers; tries of one second each, then 55P03), ACCESS EXCLUSIVE
-- where a trigger has to go (another scope, inserts that need no claim any more, ...: waits out readers, too); while it is
-- held, a row scope over nullable columns reads the table once. Then fence._guard ROW EXCLUSIVE, and for a covering resource
-- that is new what fence._begin_covering says: where these are busy, the table is let go of, and all is tried again.
-- Codes: LF010 bad argument, 42501 not the owner, 55P03 the table, or what else it locks, stayed busy.
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
begin
  perform fence._check_choice('p_mode', p_mode, array['enforce', 'observe']);
  perform fence._check_choice('p_expiry', p_expiry, array['reject', 'until_superseded']);
  perform fence._check_choice('p_writes', p_writes, array['many', 'once', 'sequenced']);
  perform fence._check_choice('p_inserts', p_inserts, array['check', 'allow']);
  perform fence._check_table(p_table);
  perform fence._change_guard(p_table, 'share row exclusive',
    format('select fence._define_guard(%L, %L, %L, %L, %L, %L, %L, %L, %L)',
      p_table::oid, p_resource, p_mode, p_expiry, p_writes, p_inserts, p_covering, p_token_column, p_uncatchable));
  perform fence._refuse_null_keys(p_table);
end
$$;

comment on function fence.protect(regclass, text, text, text, text, text, text, name, boolean) is
  'Guards a table: every write must present the current token of the resource it touches. LF010, 42501, 55P03.';
