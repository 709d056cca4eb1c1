-- LF010 unless p_ttl is a time a lease may last: at least one millisecond, at most one day.
create function fence._check_ttl(p_ttl interval) returns void
language plpgsql
stable
as $$
begin
  if p_ttl is null or p_ttl < interval '1 millisecond' or p_ttl > interval '1 day' then
    perform fence._raise('LF010', pg_catalog.format('a ttl of %s is out of range', coalesce(p_ttl::text, 'null')),
      'A ttl is at least one millisecond and at most one day.',
      'Pass a ttl such as interval ''30 seconds'' and renew the lease while the work goes on.');
  end if;
end
$$;
