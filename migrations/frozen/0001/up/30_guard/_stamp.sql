-- The token to stamp on a row of a resource: that of the transaction's claim. The guard verifies the claim after the statement.
-- Without one the row keeps what it has: the statement fails, or a replication worker made it.
create function fence._stamp(p_resource text, p_present bigint) returns bigint
language plpgsql
stable
as $$
declare
  v_token text := pg_catalog.split_part(fence._claim_on(fence._claims(), p_resource), ' ', 1);
begin
  return case
    when v_token ~ '^[0-9]{1,19}$' then case when v_token::numeric <= 9223372036854775807 then v_token::bigint else p_present end
    else p_present
  end;
end
$$;
