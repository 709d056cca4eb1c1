-- One line in the server log about a write that a guard refused or let pass, for machines: 'pyfence ' and a JSON object. No secret is in it.
create function fence._log(p_event text, p_code text, p_table oid, p_resource text) returns void
language plpgsql
stable
as $$
begin
  raise log 'pyfence %', pg_catalog.json_build_object('event', p_event, 'code', p_code, 'table', p_table::regclass::text,
    'resource', p_resource, 'role', session_user, 'application', pg_catalog.current_setting('application_name'),
    'client', pg_catalog.inet_client_addr(), 'pid', pg_catalog.pg_backend_pid());
end
$$;
