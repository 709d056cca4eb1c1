-- The token to stamp on a row of a resource: its lease's newest, which the guard asks the transaction's claim to be when the statement is over. Not the claim's own:
-- a statement may change that between two rows, and put it back. Without a claim the row keeps what it has: the statement fails, or its writer may pass.
create function fence._stamp(p_resource text, p_present bigint) returns bigint
language plpgsql
stable
as $$
begin
  return case when fence._claim_on(fence._claims(), p_resource) <> ''
    then coalesce((select l.token from fence._lease l where l.resource = p_resource), p_present) else p_present end;
end
$$;
