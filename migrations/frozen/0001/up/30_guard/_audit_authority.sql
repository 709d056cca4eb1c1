-- The token authority: a change of identity that is pending, a quarantine, a clock behind the tokens. A restart that will be accepted is none.
create function fence._audit_authority()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select case s.state when 'quarantined' then 'error' else 'warning' end,
      case s.state when 'quarantined' then 'authority-quarantined' when 'pending' then 'identity-changed' else 'clock-behind' end,
      'fence._authority',
      case s.state
        when 'quarantined' then pg_catalog.format('No lease is granted: %s.', s.why)
        when 'pending' then pg_catalog.format('Leases granted before are no longer accepted: %s.', s.why)
        else pg_catalog.format('If a roll-back without trace happened now, tokens could repeat: %s.', s.why)
      end,
      s.remedy
    from fence._authority_state() s
    where s.remedy is not null;
end
$$;
