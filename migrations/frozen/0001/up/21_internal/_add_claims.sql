-- Records verified claims for this transaction; a claim on a resource replaces the one that is there. The setting is local and
-- begins with the transaction's id: it cannot outlive the transaction, whatever a pool does, and goes with a rolled-back savepoint.
create function fence._add_claims(p_resources text[], p_tokens bigint[], p_secrets text[], p_sequences bigint[]) returns void
language plpgsql
volatile
as $$
declare
  v_claims text := coalesce(fence._claims(), pg_catalog.pg_current_xact_id()::text || E'\n');
  v_key text;
  v_start integer;
  v_added text := '';
begin
  for i in 1 .. pg_catalog.cardinality(p_resources) loop
    v_key := fence._hex(p_resources[i]) || ' ';
    v_start := pg_catalog.strpos(v_claims, E'\n' || v_key);
    if v_start > 0 then
      v_claims := pg_catalog.left(v_claims, v_start)
        || pg_catalog.substr(v_claims, v_start + 2 + pg_catalog.strpos(pg_catalog.substr(v_claims, v_start + 2), E'\n'));
    end if;
    v_added := v_added || v_key || p_tokens[i] || ' ' || p_secrets[i] || ' ' || coalesce(p_sequences[i]::text, '-') || E'\n';
  end loop;
  perform pg_catalog.set_config('fence.claims', v_claims || v_added, true);
end
$$;
