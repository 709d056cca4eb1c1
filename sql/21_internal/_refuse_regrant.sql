-- LF010: a token is asked for where a claim counts that it would make stale, or that covers it: both would write in one transaction.
-- p_resource what is asked for; p_claimed what the claim is on.
create function fence._refuse_regrant(p_resource text, p_claimed text) returns void
language plpgsql
stable
as $$
begin
  perform fence._raise('LF010', pg_catalog.format('no new token of %L beside a claim on %L', p_resource, p_claimed),
    'This transaction has presented that claim, or its connection has it as its start-up claim: it would write under both.',
    pg_catalog.format('Commit or roll back first; acquire in a transaction of its own, on a connection without a start-up claim on %L.', p_claimed));
end
$$;
