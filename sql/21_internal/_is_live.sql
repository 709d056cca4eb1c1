-- Has the lease a holder at this moment? Reads the clock, never the transaction's start.
create function fence._is_live(p_lease fence._lease, p_authority_lineage bigint) returns boolean
language sql
volatile
as $$
  select (p_lease).secret_hash is not null
    and (p_lease).lineage = p_authority_lineage
    and (p_lease).expires_at > pg_catalog.clock_timestamp()
    and fence._is_entered((p_lease).entered)
$$;
