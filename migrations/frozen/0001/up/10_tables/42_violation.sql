-- Writes that a guard let pass and would have refused: on an observed table, or by an exempt role. At most one row for a table, a code and
-- a transaction, added by that transaction and never looked at by another writer: nobody waits here.
create table fence._violation (
  id bigint generated always as identity,
  at timestamptz not null,
  protected_table text not null,
  code text not null,
  resource text collate "C",
  role text not null,
  application text,
  client inet,
  query_id bigint,
  exempt boolean not null,
  constraint _violation_pkey primary key (id)
);

comment on table fence._violation is 'Writes that were let pass and would have been refused, one row for a table, a code and a transaction.';
comment on column fence._violation.query_id is 'The statement''s identifier, where the server computes it and the schema''s owner may read it.';
comment on column fence._violation.exempt is 'Let pass by an exemption, not because the table is only observed.';
