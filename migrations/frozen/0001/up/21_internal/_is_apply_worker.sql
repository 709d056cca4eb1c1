-- Is this backend a logical replication worker? It cannot present claims, and what it applies was checked on the publisher. The
-- statistics cannot be faked by a session: they list the pids of running workers. Asked only before a refusal.
create function fence._is_apply_worker() returns boolean
language sql
stable
as $$
  select exists (select from pg_catalog.pg_stat_get_subscription(null) s where s.pid = pg_catalog.pg_backend_pid())
$$;
