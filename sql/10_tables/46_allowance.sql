-- Which names a role may acquire, and how many at a time. A role without a row here may acquire every name. By name, as roles
-- are not part of a dump.
create table fence._allowance (
  role text not null,
  pattern text collate "C" not null,
  expression text collate "C" not null,
  max_leases integer,
  allowed_at timestamptz not null,
  allowed_by text not null,
  constraint _allowance_pkey primary key (role, pattern),
  constraint _allowance_max_leases_check check (max_leases > 0)
);

comment on table fence._allowance is 'Which names a role, or a member of it, may acquire. No row for any of its roles: every name.';
comment on column fence._allowance.pattern is 'A name, with * for any run of characters.';
comment on column fence._allowance.expression is 'The pattern as a regular expression.';
comment on column fence._allowance.max_leases is 'How many leases under the pattern a session''s role may hold at a time. Null: any number.';
