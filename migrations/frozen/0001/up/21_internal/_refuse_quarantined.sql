-- LF009: why, and what an administrator does about it. p_floor: the clock is behind, and a new lineage needs a floor of at least that.
create function fence._refuse_quarantined(p_why text, p_floor bigint default null, p_table oid default null) returns void
language plpgsql
stable
as $$
begin
  perform fence._raise('LF009', pg_catalog.format('the token authority is quarantined: %s', p_why),
    case
      when p_floor is not null then
        pg_catalog.format('The clock is behind the tokens that this database remembers: the least floor would be %s.', p_floor)
      else 'Whether grants were lost with it, the database cannot know; until somebody confirms, no token is granted and no claim is accepted.'
    end,
    fence._quarantine_remedy(p_floor), p_table);
end
$$;
