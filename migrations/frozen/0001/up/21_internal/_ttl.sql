-- A ttl, in hours and smaller units only: months and days have no fixed length. LF010 unless it is at least one millisecond
-- and at most one day.
create function fence._ttl(p_ttl interval) returns interval
language plpgsql
stable
as $$
declare
  v_seconds double precision := extract(epoch from p_ttl);
begin
  if v_seconds is null or v_seconds < 0.001 or v_seconds > 86400 then
    perform fence._raise('LF010', pg_catalog.format('a ttl of %s is out of range', coalesce(p_ttl::text, 'null')),
      'A ttl is at least one millisecond and at most one day.',
      'Pass a ttl such as interval ''30 seconds'' and renew the lease while the work goes on.');
  end if;
  return pg_catalog.make_interval(secs => v_seconds);
end
$$;
