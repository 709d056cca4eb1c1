-- Does a server of this version lose rows of a MERGE from the transition tables? Where another part of the statement writes the same table (a CTE, a foreign key
-- that refers to it), such a row is in none of them, and no guard after the statement sees it. "Fix trigger transition table capture for MERGE in CTE queries",
-- release notes of 18.2; MERGE is there from 15 on.
create function fence._has_merge_fault(p_version integer) returns boolean
language sql
immutable
as $$
  select p_version between 150000 and 150015 or p_version between 160000 and 160011 or p_version between 170000 and 170007
    or p_version between 180000 and 180001
$$;
