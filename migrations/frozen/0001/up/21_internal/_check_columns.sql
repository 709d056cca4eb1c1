-- LF010 unless p_values is an object, not empty, whose members are columns of the table that can be written. p_what: 'key' or
-- 'changes'; a key has no nulls.
create function fence._check_columns(p_table oid, p_what text, p_values jsonb) returns void
language plpgsql
stable
as $$
declare
  v_name text;
begin
  if pg_catalog.jsonb_typeof(p_values) is distinct from 'object' or p_values = '{}' then
    perform fence._raise('LF010', pg_catalog.format('the %s must name columns', p_what),
      'It is null, empty, or no JSON object.', 'Pass an object of column names and values, such as {"id": 1}.', p_table);
  end if;
  select j.name into v_name
  from pg_catalog.jsonb_object_keys(p_values) j (name)
  where not exists (
    select from pg_catalog.pg_attribute a
    where a.attrelid = p_table and a.attname = j.name and a.attnum > 0 and not a.attisdropped
      and (p_what = 'key' or a.attgenerated = ''))
  order by j.name
  limit 1;
  if found then
    perform fence._raise('LF010', pg_catalog.format('the %s names a column that cannot be used', p_what),
      pg_catalog.format('%s has no writable column %I.', p_table::regclass, v_name),
      'Spell the columns as in the catalog, without quotes; leave generated columns out.', p_table);
  end if;
  select j.key into v_name from pg_catalog.jsonb_each(p_values) j (key, value) where p_what = 'key' and j.value = 'null' limit 1;
  if found then
    perform fence._raise('LF010', pg_catalog.format('column %I of the key is null', v_name), 'A null names no row.',
      'Pass a value for every column of the key.', p_table);
  end if;
end
$$;
