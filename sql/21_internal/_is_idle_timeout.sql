-- Is it a value of the option idle_timeout: 'ttl', or a length of time from one millisecond to one day?
create function fence._is_idle_timeout(p_value text) returns boolean
language plpgsql
stable
as $$
begin
  return p_value = 'ttl' or extract(epoch from p_value::interval) between 0.001 and 86400;
exception when data_exception then
  return false;
end
$$;
