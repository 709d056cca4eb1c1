create view fence.options as
select o.name, o.value, o.allowed, o.description, o.reason, o.changed_at, o.changed_by
from fence._option o;

comment on view fence.options is 'The options of this database: value, what it may be, and who last changed it and why.';
