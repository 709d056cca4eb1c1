-- The token to stamp on a row of a resource: its lease's, where the transaction's claim is the present one of that at this moment. Compared for every row, as a
-- statement may change its claims between two rows and put them back; without a lock and without the clock: when the statement is over the guard accepts the claim or
-- refuses it. Null without such a claim: the statement fails, its writer may pass, or the row is not written after all (on conflict do nothing).
create function fence._stamp(p_resource text) returns bigint
language plpgsql
stable
as $$
declare
  v_claim text := fence._claim_on(fence._claims(), p_resource);
  v_token bigint;
begin
  if v_claim <> '' then
    select l.token into v_token
    from fence._lease l
    where l.resource = p_resource
      and fence._is_current(l.token, l.secret_hash, true, pg_catalog.split_part(v_claim, ' ', 1), pg_catalog.split_part(v_claim, ' ', 2));
  end if;
  return v_token;
end
$$;
