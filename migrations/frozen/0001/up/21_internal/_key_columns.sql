-- The columns that a template names on a table, in template order, each with the expressions that read it:
--   raw       the column (to be qualified by the caller) as rows are told apart by it: its equality is that of the text
--   moved     whether an update changed it
--   rendered  its text in a resource's name: a format, for what the column is called there
-- Allowed are types whose text has one spelling per value and depends on no setting. Rendering goes through the type's
-- output function (concat), never through a cast: a user-made cast would run with the guard's rights.
-- LF010 for an unknown column, a virtual generated column, or another type.
create function fence._key_columns(p_table oid, p_template text)
returns table (ordinal integer, attname name, raw text, moved text, rendered text)
language plpgsql
stable
as $$
declare
  v_part record;
  v_column record;
  v_base oid;
begin
  for v_part in
    select p.ordinal, p.value from fence._template_parts(p_template) p
    where p.kind = 'name' and p.value not in ('@schema', '@table')
    order by p.ordinal
  loop
    select a.attname, a.attnum, a.attgenerated, a.atttypid, a.atttypmod, b.oid as base, b.typtype as base_kind,
      coalesce(l.collisdeterministic, true) as deterministic
    into v_column
    from pg_catalog.pg_attribute a
    join pg_catalog.pg_type b on b.oid = fence._base_type(a.atttypid)
    left join pg_catalog.pg_collation l on l.oid = a.attcollation
    where a.attrelid = p_table and a.attname = v_part.value and a.attnum > 0 and not a.attisdropped;
    if not found then
      perform fence._raise('LF010', pg_catalog.format('template %L names an unknown column', p_template),
        pg_catalog.format('%s has no column %I.', p_table::regclass, v_part.value),
        'Name existing columns, spelled as in the catalog and without quotes.', p_table);
    end if;
    if v_column.attgenerated = 'v' then
      perform fence._raise('LF010', pg_catalog.format('column %I cannot be part of a key', v_column.attname),
        'It is a virtual generated column: triggers do not see its value.',
        'Make the column stored, or name the columns that it is computed from.', p_table);
    end if;
    ordinal := v_part.ordinal;
    attname := v_column.attname;
    raw := pg_catalog.quote_ident(v_column.attname);
    moved := fence._changed(p_table, v_column.attnum);
    if v_column.base in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'uuid'::regtype) then
      rendered := 'concat(%1$s)';
    elsif v_column.base = 'bool'::regtype then
      rendered := $sql$case concat(%1$s) when 't' then 'true' else 'false' end$sql$;
    elsif v_column.base_kind = 'e' then
      rendered := 'fence._encode(concat(%1$s))';
    elsif v_column.base in ('text'::regtype, 'varchar'::regtype) and v_column.deterministic then
      rendered := 'fence._encode(concat(%1$s))';
      raw := raw || ' collate "C"';
    else
      perform fence._raise('LF010', pg_catalog.format('column %I cannot be part of a key', v_column.attname),
        pg_catalog.format('Type %s%s has no single spelling per value.', pg_catalog.format_type(v_column.atttypid, v_column.atttypmod),
          case when v_column.deterministic then '' else ' with a nondeterministic collation' end),
        'Use a key of type smallint, integer, bigint, text, varchar, uuid, boolean or an enum; for another type, a stored '
          || 'generated column of type text.', p_table);
    end if;
    rendered := 'case when %1$s is not null then ' || rendered || ' end';
    return next;
  end loop;
end
$$;
