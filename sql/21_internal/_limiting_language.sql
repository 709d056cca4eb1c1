-- A language of this database in which a function can stop a statement at a number of rows (PL/Perl, PL/Python, PL/Tcl: SPI_execute has a count), or null. SQL
-- and PL/pgSQL run each to its end; what is written in C is a superuser's.
create function fence._limiting_language() returns text
language plpgsql
stable
as $$
begin
  return (select pg_catalog.min(l.lanname) from pg_catalog.pg_language l where l.lanname not in ('internal', 'c', 'sql', 'plpgsql'));
end
$$;
