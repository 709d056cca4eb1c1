-- Does a change of identity (fence._identity_change) wait for fence.confirm_lineage, whatever the clock says?
create function fence._waits_for_operator(p_kind text) returns boolean
language sql
stable
as $$
  select case p_kind
    when 'lineage' then fence._option_value('lineage_policy') is distinct from 'auto'
    when 'restart' then fence._option_value('on_restart') is distinct from 'accept'
    else p_kind is not null
  end
$$;
