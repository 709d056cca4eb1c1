-- The registry of protected tables: what each guard was generated from. Which table a guard sits on is told by the triggers
-- that call fence._guard_<id>; the names here say where it was put, for a table whose triggers are gone. Names, not oids:
-- they survive dump and restore, and a dropped table's number is never taken for another's.
create table fence._guard (
  id integer generated always as identity,
  schema_name text not null,
  table_name text not null,
  template text not null,
  template_schema text not null,
  template_table text not null,
  scope text not null,
  mode text not null,
  expiry text not null,
  writes text not null,
  inserts text not null,
  covering text collate "C",
  pattern text collate "C",
  prefix text collate "C",
  token_column text,
  uncatchable boolean not null,
  protected_at timestamptz not null,
  protected_by text not null,
  constraint _guard_pkey primary key (id),
  constraint _guard_scope_check check (scope in ('table', 'row')),
  constraint _guard_mode_check check (mode in ('enforce', 'observe')),
  constraint _guard_expiry_check check (expiry in ('reject', 'until_superseded')),
  constraint _guard_writes_check check (writes in ('many', 'once', 'sequenced')),
  constraint _guard_inserts_check check (inserts in ('check', 'allow'))
);

create index _guard_covering_idx on fence._guard (covering) where covering is not null;

comment on table fence._guard is 'Protected tables: what each generated guard function fence._guard_<id> was made from.';
comment on column fence._guard.template_schema is 'What {@schema} stands for: frozen when the table was first protected.';
comment on column fence._guard.template_table is 'What {@table} stands for: frozen when the table was first protected.';
comment on column fence._guard.pattern is 'A regular expression for the names that the template renders to. Null: no covering resource.';
comment on column fence._guard.prefix is 'What all of those names begin with.';
