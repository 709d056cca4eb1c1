-- Settings that write secrets down: parameters in the server's log.
create function fence._audit_settings()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select 'warning', 'secrets-logged', s.name, s.detail, 'alter system set ' || s.name || ' = 0; select pg_reload_conf();'
    from (values
      ('log_parameter_max_length', 'The server logs the parameters of statements, among them the secrets of leases.',
        pg_catalog.current_setting('log_parameter_max_length') <> '0' and (pg_catalog.current_setting('log_statement') = 'all'
          or pg_catalog.current_setting('log_min_duration_statement') <> '-1' or pg_catalog.current_setting('log_min_duration_sample') <> '-1'
          or pg_catalog.current_setting('log_transaction_sample_rate') <> '0')),
      ('log_parameter_max_length_on_error', 'The server logs the parameters of statements that fail, among them the secrets of leases.',
        pg_catalog.current_setting('log_parameter_max_length_on_error') <> '0')) s (name, detail, found)
    where s.found;
end
$$;
