-- The expression that reads a column's value, in the column's type, from a JSON object (the expression p_source). Common types are
-- converted directly; the others the way jsonb_to_record does it, which knows arrays and composites. Lengths and scales are the
-- assignment's to apply. Types are qualified: the caller's search_path reads the expression.
create function fence._value(p_table oid, p_attnum smallint, p_source text) returns text
language sql
stable
as $$
  select case
    when a.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype, 'float8'::regtype, 'bool'::regtype,
      'text'::regtype, 'varchar'::regtype, 'uuid'::regtype, 'date'::regtype, 'timestamptz'::regtype)
    then pg_catalog.format('pg_catalog.jsonb_object_field_text(%s, %L)::pg_catalog.%I', p_source, a.attname, t.typname)
    else pg_catalog.format('(select v.%1$I from pg_catalog.jsonb_to_record(%2$s) as v (%1$I %3$I.%4$I))', a.attname, p_source,
      n.nspname, t.typname)
  end
  from pg_catalog.pg_attribute a
  join pg_catalog.pg_type t on t.oid = a.atttypid
  join pg_catalog.pg_namespace n on n.oid = t.typnamespace
  where a.attrelid = p_table and a.attnum = p_attnum
$$;
