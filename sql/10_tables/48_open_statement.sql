-- Statements of a transaction that a guard has seen begin and not end. PostgreSQL fires no trigger after a statement that was stopped at a row limit (the count of
-- SPI_execute, with RETURNING), though its rows are written: who has such a row is not let commit (fence._refuse_open_statement). Empty but for open transactions. Kept only
-- where the database has a language that can set the limit (fence._limiting_language).
create table fence._open_statement (
  id bigint generated always as identity,
  xact xid8 not null,
  open integer not null,
  protected_table oid not null,
  constraint _open_statement_pkey primary key (id)
) with (fillfactor = 50);

comment on table fence._open_statement is 'Statements of open transactions whose rows a guard has still to look at. One row a transaction.';
comment on column fence._open_statement.protected_table is 'The table of the outermost of them.';
