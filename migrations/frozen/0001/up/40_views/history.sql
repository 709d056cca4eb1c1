create view fence.history as
select h.id, h.at, h.event, h.resource, h.token, h.owner, h.role, h.application, h.client, h.detail
from fence._history h;

comment on view fence.history is 'Grants, closings and changes of guards: when, what, who.';
