-- The condition that finds a row by its key, $1 as jsonb. LF010 unless the columns are exactly those of a unique index that
-- is valid, immediate, and neither partial nor over expressions. The comparison is the index's own equality operator.
create function fence._key_condition(p_table oid, p_key jsonb, p_alias text) returns text
language plpgsql
stable
as $$
declare
  v_index oid;
begin
  select i.indexrelid into v_index
  from pg_catalog.pg_index i
  where i.indrelid = p_table and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null
    and (select pg_catalog.array_agg(a.attname::text order by a.attname::text)
         from pg_catalog.generate_series(0, i.indnkeyatts - 1) k (n)
         join pg_catalog.pg_attribute a on a.attrelid = p_table and a.attnum = i.indkey[k.n])
      = (select pg_catalog.array_agg(j.name order by j.name collate "C") from pg_catalog.jsonb_object_keys(p_key) j (name))
  order by i.indisprimary desc, i.indexrelid
  limit 1;
  if v_index is null then
    perform fence._raise('LF010', pg_catalog.format('not a unique key of %s', p_table::regclass),
      pg_catalog.format('No primary key or unique index is exactly on (%s).',
        (select pg_catalog.string_agg(pg_catalog.quote_ident(j.name), ', ') from pg_catalog.jsonb_object_keys(p_key) j (name))),
      'Pass all the columns of one primary key or unique constraint, and no other.', p_table);
  end if;
  return (
    select pg_catalog.string_agg(pg_catalog.format('%1$s.%2$I operator(%3$I.%4$s) (select v.%2$I from %5$s v)',
      p_alias, a.attname, n.nspname, o.oprname, fence._record_source(p_table, p_key, '$1')), ' and ' order by k.n)
    from pg_catalog.pg_index i
    cross join pg_catalog.generate_series(0, i.indnkeyatts - 1) k (n)
    join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[k.n]
    join pg_catalog.pg_opclass c on c.oid = i.indclass[k.n]
    join pg_catalog.pg_amop m on m.amopfamily = c.opcfamily and m.amoplefttype = c.opcintype and m.amoprighttype = c.opcintype
      and m.amopstrategy = 3
    join pg_catalog.pg_operator o on o.oid = m.amopopr
    join pg_catalog.pg_namespace n on n.oid = o.oprnamespace
    where i.indexrelid = v_index
  );
end
$$;
