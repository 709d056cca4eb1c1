-- The token: the one place that makes one. The caller holds the lease row FOR UPDATE (or is inserting it) and has asked fence._lineage.
-- The authority's identity is compared in the statement that reads its floor. LF009 when the range is used up, or as fence._lineage.
create function fence._next_token(p_last bigint) returns bigint
language plpgsql
volatile
as $$
declare
  v_token bigint;
begin
  if p_last = 9223372036854775807 then
    perform fence._raise('LF009', 'the tokens of this resource are exhausted',
      'The last token was the largest bigint.', 'Coordinate the work under a new resource name.');
  end if;
  select greatest(p_last + 1, fence._clock_term(p.floor, p.floor_at, pg_catalog.clock_timestamp())) into v_token
  from fence._present_lineage p;
  if not found then
    perform fence._lineage();
    return fence._next_token(p_last);
  end if;
  return v_token;
end
$$;
