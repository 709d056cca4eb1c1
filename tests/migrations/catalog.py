"""Everything the catalog knows about a schema, as text that can be compared object by object.

    from migrations.catalog import differences, snapshot

    assert differences(snapshot(one), snapshot(other)) == []

A snapshot maps `kind identity: facet` to a value. Nothing in it depends on object numbers, on the order of creation or
on settings; privileges left at their default and the same privileges granted by hand are the same.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

Snapshot = dict[str, str]

# The objects of the schema, each with what its owner, privileges and comment are looked up by.
_OBJECTS = """
objects (kind, identity, classid, objid, owner, acl) as (
  select 'schema', n.nspname::text, 'pg_namespace'::regclass, n.oid, n.nspowner,
         coalesce(n.nspacl, acldefault('n', n.nspowner))
  from pg_namespace n, s where n.oid = s.oid
  union all
  select case c.relkind when 'r' then 'table' when 'p' then 'table' when 'v' then 'view' when 'm' then 'matview'
                        when 'S' then 'sequence' when 'f' then 'foreign table' else 'relation' end,
         c.oid::regclass::text, 'pg_class'::regclass, c.oid, c.relowner,
         coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))
  from pg_class c, s where c.relnamespace = s.oid and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
  union all
  select case p.prokind when 'a' then 'aggregate' when 'p' then 'procedure' else 'function' end,
         p.oid::regprocedure::text, 'pg_proc'::regclass, p.oid, p.proowner,
         coalesce(p.proacl, acldefault('f', p.proowner))
  from pg_proc p, s where p.pronamespace = s.oid
  union all
  select 'type', t.oid::regtype::text, 'pg_type'::regclass, t.oid, t.typowner,
         coalesce(t.typacl, acldefault('T', t.typowner))
  from pg_type t left join pg_class c on c.oid = t.typrelid, s
  where t.typnamespace = s.oid and t.typelem = 0 and (t.typrelid = 0 or c.relkind = 'c')
  union all
  select 'index', i.indexrelid::regclass::text, 'pg_class'::regclass, i.indexrelid, c.relowner, null
  from pg_index i join pg_class c on c.oid = i.indexrelid, s where c.relnamespace = s.oid
  union all
  select 'constraint',
         format('%s %I', coalesce(nullif(k.conrelid, 0)::regclass::text, k.contypid::regtype::text), k.conname),
         'pg_constraint'::regclass, k.oid, null, null
  from pg_constraint k, s where k.connamespace = s.oid
  union all
  -- also on tables elsewhere, if they call a function of the schema
  select 'trigger', format('%s %I', t.tgrelid::regclass, t.tgname), 'pg_trigger'::regclass, t.oid, null, null
  from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid, s
  where not t.tgisinternal and s.oid in (c.relnamespace, p.pronamespace)
  union all
  select 'event trigger', e.evtname::text, 'pg_event_trigger'::regclass, e.oid, e.evtowner, null
  from pg_event_trigger e join pg_proc p on p.oid = e.evtfoid, s where p.pronamespace = s.oid
  union all
  select 'policy', format('%s %I', y.polrelid::regclass, y.polname), 'pg_policy'::regclass, y.oid, null, null
  from pg_policy y join pg_class c on c.oid = y.polrelid, s where c.relnamespace = s.oid
  union all
  select 'rule', format('%s %I', r.ev_class::regclass, r.rulename), 'pg_rewrite'::regclass, r.oid, null, null
  from pg_rewrite r join pg_class c on c.oid = r.ev_class, s where c.relnamespace = s.oid and r.rulename <> '_RETURN'
  union all
  select 'statistics', format('%I.%I', s.name, x.stxname), 'pg_statistic_ext'::regclass, x.oid, x.stxowner, null
  from pg_statistic_ext x, s where x.stxnamespace = s.oid
  union all
  select 'operator', o.oid::regoperator::text, 'pg_operator'::regclass, o.oid, o.oprowner, null
  from pg_operator o, s where o.oprnamespace = s.oid
)
"""

_FACETS = """
facets (kind, identity, facet, value) as (
  select kind, identity, 'exists', 'yes' from objects
  union all
  select kind, identity, 'owner', pg_get_userbyid(owner)::text from objects where owner is not null
  union all
  select kind, identity, 'comment', obj_description(objid, classid::text::name) from objects
  union all
  select o.kind, o.identity,
         format('%s may %s', case a.grantee when 0 then 'public' else pg_get_userbyid(a.grantee) end, a.privilege_type),
         format('by %s%s', pg_get_userbyid(a.grantor), case when a.is_grantable then ' with grant option' end)
  from objects o, aclexplode(o.acl) a
  union all
  select kind, identity, 'definition', pg_get_functiondef(objid) from objects where kind in ('function', 'procedure')
  union all
  select kind, identity, 'result', pg_get_function_result(objid) from objects where kind in ('function', 'procedure')
  union all
  select kind, identity, 'definition', pg_get_viewdef(objid) from objects where kind in ('view', 'matview')
  union all
  select kind, identity, 'definition', pg_get_indexdef(objid) from objects where kind = 'index'
  union all
  select kind, identity, 'definition', pg_get_constraintdef(objid) from objects where kind = 'constraint'
  union all
  select kind, identity, 'definition', pg_get_triggerdef(objid) from objects where kind = 'trigger'
  union all
  select kind, identity, 'definition', pg_get_ruledef(objid) from objects where kind = 'rule'
  union all
  select kind, identity, 'definition', pg_get_statisticsobjdef(objid) from objects where kind = 'statistics'
  union all
  select o.kind, o.identity, 'enabled', t.tgenabled::text from objects o join pg_trigger t on t.oid = o.objid
  where o.kind = 'trigger'
  union all
  select o.kind, o.identity, 'enabled', e.evtenabled::text from objects o join pg_event_trigger e on e.oid = o.objid
  where o.kind = 'event trigger'
  union all
  select o.kind, o.identity, 'definition',
         format('%s %s %s using %s check %s', y.polcmd, y.polpermissive, y.polroles::regrole[],
                pg_get_expr(y.polqual, y.polrelid), pg_get_expr(y.polwithcheck, y.polrelid))
  from objects o join pg_policy y on y.oid = o.objid where o.kind = 'policy'
  union all
  select o.kind, o.identity, 'storage',
         format('%s %s options %s row security %s %s replica identity %s access %s tablespace %s partition of %s',
                c.relkind, c.relpersistence, c.reloptions, c.relrowsecurity, c.relforcerowsecurity, c.relreplident,
                m.amname, c.reltablespace,
                (select string_agg(i.inhparent::regclass::text, ', ') from pg_inherits i where i.inhrelid = c.oid))
  from objects o join pg_class c on c.oid = o.objid left join pg_am m on m.oid = c.relam
  where o.classid = 'pg_class'::regclass
  union all
  select o.kind, o.identity, 'state',
         format('valid %s ready %s clustered %s replica identity %s', i.indisvalid, i.indisready, i.indisclustered,
                i.indisreplident)
  from objects o join pg_index i on i.indexrelid = o.objid where o.kind = 'index'
  union all
  select o.kind, o.identity, 'definition',
         format('%s start %s step %s min %s max %s cache %s cycle %s owned by %s', q.seqtypid::regtype, q.seqstart,
                q.seqincrement, q.seqmin, q.seqmax, q.seqcache, q.seqcycle,
                (select pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid) from pg_depend d
                 where d.classid = 'pg_class'::regclass and d.objid = o.objid and d.deptype in ('a', 'i')))
  from objects o join pg_sequence q on q.seqrelid = o.objid where o.kind = 'sequence'
  union all
  select o.kind, o.identity, 'definition',
         format('%s %s base %s not null %s default %s collation %s labels %s', t.typtype, t.typcategory,
                nullif(t.typbasetype, 0)::regtype, t.typnotnull, t.typdefault, nullif(t.typcollation, 0)::regcollation,
                (select string_agg(e.enumlabel, ', ' order by e.enumsortorder) from pg_enum e
                 where e.enumtypid = t.oid))
  from objects o join pg_type t on t.oid = o.objid where o.kind = 'type'
  union all
  select 'column', format('%s %I', c.oid::regclass, a.attname), f.facet, f.value
  from pg_class c
       join pg_attribute a on a.attrelid = c.oid
       left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum,
       s,
       lateral (values
         ('definition', format('#%s %s not null %s default %s identity %s generated %s collation %s',
                               (select count(*) from pg_attribute b
                                where b.attrelid = c.oid and not b.attisdropped and b.attnum between 1 and a.attnum),
                               format_type(a.atttypid, a.atttypmod),
                               a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated,
                               nullif(a.attcollation, 0)::regcollation)),
         ('storage', format('%s %s %s target %s', a.attstorage, a.attcompression, a.attoptions,
                            nullif(a.attstattarget, -1))),
         ('comment', col_description(c.oid, a.attnum)),
         ('privileges', a.attacl::text)
       ) f (facet, value)
  where c.relnamespace = s.oid and c.relkind in ('r', 'p', 'v', 'm', 'f', 'c') and a.attnum > 0 and not a.attisdropped
  union all
  select 'default privileges', format('%s %s of %s', s.name, d.defaclobjtype, pg_get_userbyid(d.defaclrole)),
         'acl', d.defaclacl::text
  from pg_default_acl d, s where d.defaclnamespace = s.oid
)
"""


def snapshot(connection: psycopg.Connection[Any], schema: str = "fence", *, ignore: tuple[str, ...] = ()) -> Snapshot:
    """Describe everything in `schema`, and the triggers elsewhere that call its functions.

    `ignore` names tables that are left out with all that is theirs, such as `fence.alembic_version`.
    Changes nothing: the search_path that the names are written with is the transaction's own and is put back.
    """
    name = sql.Literal(schema).as_string(connection)
    with connection.transaction():
        cursor = psycopg.Cursor(connection)
        before = cursor.execute("select current_setting('search_path')").fetchone()
        assert before is not None
        cursor.execute("select set_config('search_path', 'pg_catalog', true)")
        rows = cursor.execute(
            f"with s (oid, name) as (select oid, nspname from pg_namespace where nspname = {name}), "
            f"{_OBJECTS}, {_FACETS} select kind, identity, facet, value from facets where value is not null"
        ).fetchall()
        cursor.execute("select set_config('search_path', %s, true)", before)
    found: Snapshot = {}
    for kind, identity, facet, value in rows:
        if any(identity.startswith(name) for name in ignore):
            continue
        key = f"{kind} {identity}: {facet}"
        assert key not in found, f"two objects called {key}"
        found[key] = value
    return found


def differences(left: Snapshot, right: Snapshot) -> list[str]:
    """List what differs, one readable entry each; empty if nothing does."""
    return [
        f"{key}\n  - {left.get(key, '(absent)')}\n  + {right.get(key, '(absent)')}"
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]


def identities(found: Snapshot) -> set[str]:
    """Name the objects of a snapshot, without their facets: `function fence.release(text,bigint,text)`."""
    return {key.rsplit(": ", 1)[0] for key in found}
