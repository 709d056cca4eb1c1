-- The functions of the schema as their revision left them, so that fence.audit notices one that was changed since. Not the generated
-- guard functions: what those should be is computed. Written at the end of every revision, see fence._remember_functions.
create table fence._function (
  name name not null,
  fingerprint text not null,
  volatile boolean not null,
  constraint _function_pkey primary key (name)
);

comment on table fence._function is 'Name, fingerprint and whether it is VOLATILE, of every function as it was installed. For the audit.';
