-- The token to stamp on a row of a resource: its open lease's, which the guard asks the transaction's claim to be when the statement is over. Not the claim's own:
-- a statement may change that between two rows, and put it back. Null without a claim: the statement fails, its writer may pass, or the row is not
-- written after all (on conflict do nothing).
create function fence._stamp(p_resource text) returns bigint
language plpgsql
stable
as $$
declare
  v_token bigint;
begin
  if fence._claim_on(fence._claims(), p_resource) <> '' then
    select l.token into v_token from fence._lease l where l.resource = p_resource and l.secret_hash is not null;
  end if;
  return v_token;
end
$$;
