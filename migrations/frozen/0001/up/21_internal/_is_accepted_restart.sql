-- Asked where the server has been started again since its authority last issued a token: is it the same cluster, and does the
-- option on_restart let it go on? A view calls it with its reader's rights.
create function fence._is_accepted_restart(p_system_identifier bigint) returns boolean
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return p_system_identifier is not distinct from fence._current_system() and fence._option_value('on_restart') = 'accept';
end
$$;
