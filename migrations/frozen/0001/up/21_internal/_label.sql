-- The key of the advisory lock by which a transaction that was accepted under a claim is found in pg_locks. Of resource and token, so that it
-- names one grant; of 64 bits, so that two grants do not share one.
create function fence._label(p_resource text, p_token bigint) returns bigint
language sql
immutable
as $$
  select pg_catalog.hashtextextended(p_resource collate "C", p_token)
$$;
