-- LF010: a transaction that has presented a claim asks for a token that would make it stale.
create function fence._refuse_regrant(p_resource text) returns void
language plpgsql
stable
as $$
begin
  perform fence._raise('LF010', pg_catalog.format('this transaction writes under an earlier token of %L', p_resource),
    'A new token cannot be granted inside a transaction that has presented the old one, or one that it would supersede.',
    'Commit or roll back first; acquire in a transaction of its own, on a connection without a start-up claim on it.');
end
$$;
