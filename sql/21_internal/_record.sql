-- Adds an event to the history, with who caused it.
create function fence._record(
  p_event text,
  p_resource text,
  p_token bigint,
  p_owner text,
  p_detail jsonb default null
) returns void
language plpgsql
volatile
as $$
begin
  insert into fence._history (at, event, resource, token, owner, role, application, client, detail)
  values (pg_catalog.clock_timestamp(), p_event, p_resource, p_token, p_owner, session_user,
    pg_catalog.current_setting('application_name'), pg_catalog.inet_client_addr(), p_detail);
end
$$;
