-- The template of a protected table. LF010 where the table is not protected.
create function fence._template_of(p_table regclass) returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_guard fence._guard := fence._guard_of(p_table);
begin
  if v_guard.id is null then
    perform fence._raise('LF010', format('%s is not protected', coalesce(p_table::text, 'null')), 'No guard sits on it.',
      format('Protect it first: select fence.protect(%L, ''report:{id}'');', coalesce(p_table::text, 'schema.table')), p_table);
  end if;
  return v_guard.template;
end
$$;
