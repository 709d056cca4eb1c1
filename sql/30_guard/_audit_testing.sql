-- The functions for tests (schema fence_testing), which end anybody's lease.
create function fence._audit_testing()
returns table (severity text, code text, object text, detail text, remedy text)
language sql
stable
as $$
  select 'error', 'test-functions', 'fence_testing', 'The functions for tests are installed: who may call them ends anybody''s lease.',
    'drop schema fence_testing cascade;'
  where pg_catalog.to_regnamespace('fence_testing') is not null
$$;
