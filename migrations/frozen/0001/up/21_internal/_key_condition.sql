-- The condition that finds a row by its key, $1 as jsonb. LF010 unless the columns are exactly those of a unique index that
-- is valid, immediate, under the columns' own collations, and neither partial nor over expressions. The comparison is the index's own equality operator.
create function fence._key_condition(p_table oid, p_key jsonb, p_alias text) returns text
language plpgsql
stable
as $$
declare
  v_columns smallint[] := array(select c.attnum from fence._columns_in(p_table, p_key) c);
  v_index pg_catalog.pg_index;
begin
  select i.* into v_index
  from pg_catalog.pg_index i
  where i.indrelid = p_table and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null
    and i.indnkeyatts = pg_catalog.cardinality(v_columns)
    and (i.indkey::smallint[])[0 : i.indnkeyatts - 1] <@ v_columns
    and not exists (
      select from unnest(i.indkey::smallint[], i.indcollation::oid[]) k (attnum, collation_oid)
      join pg_catalog.pg_attribute a on a.attrelid = p_table and a.attnum = k.attnum
      where k.collation_oid <> a.attcollation)
  order by i.indisprimary desc, i.indexrelid
  limit 1;
  if not found then
    perform fence._raise('LF010', pg_catalog.format('not a unique key of %s', p_table::regclass),
      pg_catalog.format('No primary key or unique index is exactly on (%s).',
        (select pg_catalog.string_agg(pg_catalog.quote_ident(j.name), ', ') from pg_catalog.jsonb_object_keys(p_key) j (name))),
      'Pass all the columns of one primary key or unique constraint, and no other.', p_table);
  end if;
  return (
    select pg_catalog.string_agg(pg_catalog.format('%s.%I %s %s', p_alias, a.attname, fence._equality(k.opclass),
      fence._value(p_table, a.attnum, '$1')), ' and ')
    from unnest(v_index.indkey::smallint[], v_index.indclass::oid[]) k (attnum, opclass)
    join pg_catalog.pg_attribute a on a.attrelid = p_table and a.attnum = k.attnum
    where k.opclass is not null
  );
end
$$;
