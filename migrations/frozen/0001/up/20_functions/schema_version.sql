-- The revision of the installed objects.
create function fence.schema_version() returns text
language sql
immutable
as $$ select '0001' $$;

comment on function fence.schema_version() is 'The revision of the installed pyfence objects.';
