-- A lease has just been closed by somebody who holds its row. Where it covers others, and no transaction writes under it any more, its token changes
-- at once: else the first row's grant would have to (fence._row_side), and keep all other rows waiting until its transaction ends.
-- Locks: the lease row FOR UPDATE SKIP LOCKED.
create function fence._retire_covering(p_resource text) returns void
language plpgsql
volatile
as $$
begin
  if exists (select from fence._covering c where c.resource = p_resource) then
    perform from fence._lease l where l.resource = p_resource and l.token < 9223372036854775807 for update skip locked;
    if found then
      update fence._lease l set token = l.token + 1 where l.resource = p_resource;
    end if;
  end if;
end
$$;
