create view fence.allowances as
select a.role, a.pattern, a.max_leases, a.allowed_at, a.allowed_by
from fence._allowance a;

comment on view fence.allowances is 'Which names a role, or a member of it, may acquire, and how many at a time; a role without a rule may acquire every name.';
