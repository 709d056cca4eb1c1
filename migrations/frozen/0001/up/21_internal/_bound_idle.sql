-- Limits how long the rest of this transaction may idle, so that a frozen client cannot hold its locks for ever:
-- the least of the session's own limit and p_limit. Returns the limit in force.
create function fence._bound_idle(p_limit interval) returns text
language plpgsql
volatile
as $$
declare
  v_own text := pg_catalog.current_setting('idle_in_transaction_session_timeout');
begin
  if v_own = '0' or v_own::interval > p_limit then
    return pg_catalog.set_config('idle_in_transaction_session_timeout',
      (extract(epoch from p_limit) * 1000)::bigint::text, true);
  end if;
  return v_own;
end
$$;
