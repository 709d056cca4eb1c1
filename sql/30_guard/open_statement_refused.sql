-- Deferred: only at its end is a transaction known to have stopped none of its statements.
create constraint trigger _open_statement_refused after insert on fence._open_statement
  deferrable initially deferred for each row execute function fence._refuse_open_statement();
alter table fence._open_statement enable always trigger _open_statement_refused;
