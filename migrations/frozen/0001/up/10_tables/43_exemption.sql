-- Roles whose writes to a protected table are noted, not refused, until a moment. By name, as session_user is compared.
create table fence._exemption (
  guard integer not null,
  role text not null,
  until timestamptz not null,
  reason text not null,
  granted_at timestamptz not null,
  granted_by text not null,
  constraint _exemption_pkey primary key (guard, role)
);

comment on table fence._exemption is 'Roles that a guard lets pass, and notes, until a moment.';
