"""The SQL of the command line, and no other: what it reads from the views and which functions it calls.

Names of tables and roles travel as bound text and are resolved by the server. Every name is qualified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyfence._statements import Statement

# Whether pyfence is installed, found without any right in its schema. The settings end with the transaction.
PREPARE = Statement(
    """\
select pg_catalog.set_config('TimeZone', 'UTC', true), pg_catalog.set_config('DateStyle', 'ISO', true),
  exists (
    select from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'fence' and p.proname = 'schema_version') as installed""",
    (),
)

# What the connection's start-up options have set.
STARTUP_CLAIM = Statement("select pg_catalog.current_setting('fence.claim', true)", ())
SCHEMA_VERSION = Statement("select fence.schema_version()", ())

_GUARDS = """\
select pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) as "table",
  g.schema_name, g.table_name, g.resource, g.scope, g.mode, g.expiry, g.writes, g.inserts, g.covering, g.token_column,
  g.uncatchable, g.armed, g.protected_at, g.protected_by
from fence.protected_tables g
left join pg_catalog.pg_class c on c.oid = g.protected_table
left join pg_catalog.pg_namespace n on n.oid = c.relnamespace"""
_GUARD_OF = f"{_GUARDS} where g.protected_table = %s::pg_catalog.text::pg_catalog.regclass"
GUARDS = Statement(f"{_GUARDS} order by g.schema_name, g.table_name, g.id", ())

_PROTECT = """\
select fence.protect(p_table => %s::pg_catalog.text::pg_catalog.regclass, p_resource => %s::pg_catalog.text,
  p_mode => %s::pg_catalog.text, p_expiry => %s::pg_catalog.text, p_writes => %s::pg_catalog.text,
  p_inserts => %s::pg_catalog.text, p_covering => %s::pg_catalog.text,
  p_token_column => %s::pg_catalog.text::pg_catalog.name, p_uncatchable => %s::pg_catalog.bool)"""
# Every table of a schema that a guard can be put on: not the parts of another one, nor what belongs to an extension.
_PLAN = """\
select pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) as "table",
  p.resource, p.guard, p.problem, p.remedy
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join lateral fence._plan_protect(c.oid, coalesce(
  (select o.template
   from rows from (pg_catalog.unnest(%s::pg_catalog.text[]), pg_catalog.unnest(%s::pg_catalog.text[]))
     o (name, template)
   where o.name::pg_catalog.regclass = c.oid limit 1), %s::pg_catalog.text)) p
where n.oid = %s::pg_catalog.text::pg_catalog.regnamespace and c.relkind in ('r', 'p') and c.relpersistence <> 't'
  and not exists (select from pg_catalog.pg_inherits i where i.inhrelid = c.oid)
  and not exists (
    select from pg_catalog.pg_depend d
    where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = c.oid and d.deptype = 'e')
  and c.oid <> all (%s::pg_catalog.text[]::pg_catalog.regclass[])
order by n.nspname, c.relname"""
_SET_MODE = "select fence.set_mode(%s::pg_catalog.text::pg_catalog.regclass, %s::pg_catalog.text)"
_UNPROTECT = "select fence.unprotect(%s::pg_catalog.text::pg_catalog.regclass)"
_TABLE = """\
select pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) as "table"
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = %s::pg_catalog.text::pg_catalog.regclass"""

_VIOLATIONS = """\
select v.role, v.application, v.client::pg_catalog.text as client, v.protected_table, v.code, v.count,
  v.first_at, v.last_at, v.resource, v.query_id, v.exempt
from fence.violations v
where (%s::pg_catalog.text is null or v.protected_table = (
    select pg_catalog.format('%%I.%%I', n.nspname, c.relname)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.oid = %s::pg_catalog.text::pg_catalog.regclass))
  and (%s::pg_catalog.interval is null or v.last_at >= pg_catalog.clock_timestamp() - %s::pg_catalog.interval)
order by v.role, v.application, v.client, v.protected_table, v.code, v.query_id, v.exempt
limit %s"""
_EXEMPT = """\
with wanted (until) as (select {until})
select w.until from wanted w
cross join lateral fence.exempt(%s::pg_catalog.text::pg_catalog.regclass, %s::pg_catalog.text::pg_catalog.regrole,
  w.until, %s::pg_catalog.text) e"""
_EXEMPT_FOR = _EXEMPT.format(until="pg_catalog.clock_timestamp() + %s::pg_catalog.interval")
_EXEMPT_UNTIL = _EXEMPT.format(until="%s::pg_catalog.timestamptz")
_UNEXEMPT = """\
select fence.unexempt(%s::pg_catalog.text::pg_catalog.regclass, %s::pg_catalog.text::pg_catalog.regrole)"""
_PRUNE = "select fence.prune(%s::pg_catalog.interval)"

AUDIT = Statement("select a.severity, a.code, a.object, a.detail, a.remedy from fence.audit() a", ())
_REPAIR = "select fence.repair(%s::pg_catalog.text::pg_catalog.regclass)"

AUTHORITY = Statement(
    """\
select s.state, s.why, s.remedy, s.lineage, s.floor, s.floor_at, s.next_token, s.highest_known, s.system_identifier,
  s.timeline, s.database_oid::pg_catalog.int8, s.started_at, s.present_system_identifier, s.present_timeline,
  s.present_database_oid::pg_catalog.int8, s.present_started_at
from fence._authority_state() s""",
    (),
)
OPTIONS = Statement(
    """\
select o.name, o.value, o.allowed, o.description, o.reason, o.changed_at, o.changed_by
from fence.options o
order by o.name""",
    (),
)
_CONFIRM_LINEAGE = "select fence.confirm_lineage(%s::pg_catalog.int8)"

_IN_FLIGHT = """\
select f.resource, f.token, f.pid, f.gid, f.role, f.application, pg_catalog.host(f.client) as client, f.state,
  f.since, f.began_at, f.query_start, f.wait_event
from fence.in_flight f
where %s::pg_catalog.text is null or f.resource = %s
order by f.began_at, f.pid, f.gid, f.resource
limit %s"""
_EVICT = "select fence.evict(%s::pg_catalog.text)"
_REVOKE = "select fence.revoke(%s::pg_catalog.text, %s::pg_catalog.text)"
_ROLE = "select %s::pg_catalog.text::pg_catalog.regrole::pg_catalog.text"
_ROLE_GRANTS = """\
select s.statement
from fence._role_grants(%s::pg_catalog.text::pg_catalog.regrole, %s::pg_catalog.text)
  with ordinality s (statement, position)
order by s.position"""
_ALLOW = """\
select fence.allow(%s::pg_catalog.text::pg_catalog.regrole, %s::pg_catalog.text, %s::pg_catalog.int4)"""

_LEASES = """\
select l.resource, l.state, l.owner, l.token,
  case when l.state = 'held'
    then greatest(0, pg_catalog.date_part('epoch', l.expires_at - pg_catalog.clock_timestamp())) end as seconds_left,
  l.expires_at, l.acquired_at, pg_catalog.date_part('epoch', l.ttl) as ttl_seconds, l.closed_reason, l.waiting
from fence.leases l
where (%s::pg_catalog.text is null or l.resource = %s)
  and (%s::pg_catalog.text[] is null or l.state = any (%s))
order by l.resource
limit %s"""
LEASE_COUNTS = Statement(
    "select l.state, pg_catalog.count(*) as leases from fence.leases l group by l.state order by l.state", ()
)

# Tables of the schemas that hold a protected one; partitions and inheritance children belong to their parent.
TABLE_COUNTS = Statement(
    """\
select n.nspname as schema_name, pg_catalog.count(*) as tables
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and c.relpersistence <> 't'
  and not exists (select from pg_catalog.pg_inherits i where i.inhrelid = c.oid)
  and n.nspname in (select g.schema_name from fence.protected_tables g)
group by n.nspname
order by n.nspname""",
    (),
)
REFUSALS = Statement(
    """\
select v.protected_table, v.code, pg_catalog.count(*) as count, pg_catalog.count(distinct v.role) as roles,
  pg_catalog.max(v.at) as last_at
from fence.violation_events v
where v.at >= pg_catalog.clock_timestamp() - interval '1 hour'
group by v.protected_table, v.code
order by pg_catalog.count(*) desc, v.protected_table, v.code
limit 20""",
    (),
)

_HISTORY = """\
select e.id, e.at, e.event, e.resource, e.token, e.owner, e.role, e.application, e.client, e.detail
from (
  select h.id, h.at, h.event, h.resource, h.token, h.owner, h.role, h.application,
    pg_catalog.host(h.client) as client, h.detail
  from fence.history h
  where %s::pg_catalog.text is null or h.resource = %s
  order by h.id desc
  limit %s) e
order by e.id"""

CLOCK = Statement("select pg_catalog.clock_timestamp()", ())

# Beside the resource's own events: the authority's, and those of guards whose template begins as the resource does. A
# write without a claim is stopped before anybody knows its rows: it may have been to this resource.
_TIMELINE = """\
select e.* from (
  select h.id, h.at, h.event, h.resource, h.token, h.owner, h.role, h.application,
    pg_catalog.host(h.client) as client, h.detail
  from fence.history h
  where (h.resource = %s or h.resource is null and (h.event in ('lineage', 'floor', 'restart')
      or pg_catalog.starts_with(%s, pg_catalog.split_part(h.detail ->> 'template', '{', 1))))
    and (%s::pg_catalog.timestamptz is null or h.at >= %s::pg_catalog.timestamptz)
    and (%s::pg_catalog.timestamptz is null or h.at <= %s::pg_catalog.timestamptz)
  order by h.id desc
  limit %s) e
order by e.id"""
_TIMELINE_VIOLATIONS = """\
select e.* from (
  select v.id, v.at, v.protected_table, v.code, v.resource, v.role, v.application, pg_catalog.host(v.client) as client,
    v.exempt
  from fence.violation_events v
  where (v.resource = %s or v.resource is null and v.protected_table in (
      select pg_catalog.quote_ident(g.schema_name) || '.' || pg_catalog.quote_ident(g.table_name)
      from fence.protected_tables g
      where pg_catalog.starts_with(%s, pg_catalog.split_part(g.resource, '{', 1))))
    and (%s::pg_catalog.timestamptz is null or v.at >= %s::pg_catalog.timestamptz)
    and (%s::pg_catalog.timestamptz is null or v.at <= %s::pg_catalog.timestamptz)
  order by v.id desc
  limit %s) e
order by e.id"""
_TIMELINE_ACCEPTED = """\
select a.protected_table, a.token, a.sequence, a.at
from fence.accepted_writes a
where a.resource = %s and (%s::pg_catalog.timestamptz is null or a.at >= %s::pg_catalog.timestamptz)
    and (%s::pg_catalog.timestamptz is null or a.at <= %s::pg_catalog.timestamptz)
order by a.at"""


@dataclass(frozen=True, slots=True)
class Guard:
    """The parameters of `protect`; None keeps what is there, or takes the default."""

    mode: str | None = None
    expiry: str | None = None
    writes: str | None = None
    inserts: str | None = None
    covering: str | None = None
    token_column: str | None = None
    uncatchable: bool | None = None


def protect(table: str, resource: str, guard: Guard) -> Statement:
    """Guards a table, or changes its guard. Returns nothing."""
    g = guard
    return Statement(
        _PROTECT,
        (table, resource, g.mode, g.expiry, g.writes, g.inserts, g.covering, g.token_column, g.uncatchable),
    )


def plan(schema: str, template: str, own: Sequence[tuple[str, str]], without: Sequence[str]) -> Statement:
    """What protecting every table of a schema means: `own` tables have their own template, `without` are left out."""
    names, templates = [name for name, _ in own], [text for _, text in own]
    return Statement(_PLAN, (names, templates, template, schema, list(without)))


def set_mode(table: str, mode: str) -> Statement:
    """Changes the mode of a guard. Returns nothing."""
    return Statement(_SET_MODE, (table, mode))


def unprotect(table: str) -> Statement:
    """Takes the guard off a table. Returns nothing."""
    return Statement(_UNPROTECT, (table,))


def repair(table: str | None) -> Statement:
    """Arms the guard of a table again, or of all. One value: how many."""
    return Statement(_REPAIR, (table,))


def guard_of(table: str) -> Statement:
    """The guard of a table, a row as in GUARDS; none where it is not protected."""
    return Statement(_GUARD_OF, (table,))


def full_name(table: str) -> Statement:
    """One value: schema and table, quoted as SQL needs it."""
    return Statement(_TABLE, (table,))


def violations(*, table: str | None, since: timedelta | None, limit: int) -> Statement:
    """Who was let pass and would have been refused, by writer; at most `limit` rows."""
    return Statement(_VIOLATIONS, (table, table, since, since, limit))


def exempt_for(table: str, role: str, length: timedelta, reason: str) -> Statement:
    """Lets a role pass for so long from now on; the moment at which it ends."""
    return Statement(_EXEMPT_FOR, (length, table, role, reason))


def exempt_until(table: str, role: str, until: datetime, reason: str) -> Statement:
    """Lets a role pass until a moment; that moment."""
    return Statement(_EXEMPT_UNTIL, (until, table, role, reason))


def unexempt(table: str, role: str) -> Statement:
    """Ends an exemption."""
    return Statement(_UNEXEMPT, (table, role))


def prune(age: timedelta) -> Statement:
    """Forgets what is older; how many rows went."""
    return Statement(_PRUNE, (age,))


def revoke(resource: str, reason: str) -> Statement:
    """Ends a lease without its holder. One value: whether there was one to end."""
    return Statement(_REVOKE, (resource, reason))


def evict(resource: str) -> Statement:
    """Ends the backends in the way of a lease that is over. One value: how many."""
    return Statement(_EVICT, (resource,))


def in_flight(*, resource: str | None, limit: int) -> Statement:
    """Transactions that have locked leases, the oldest first; those under one resource's lease, or all."""
    return Statement(_IN_FLIGHT, (resource, resource, limit))


def confirm_lineage(floor: int | None) -> Statement:
    """Begins a new lineage of tokens. One value: its floor."""
    return Statement(_CONFIRM_LINEAGE, (floor,))


def role_name(role: str) -> Statement:
    """One value: the role's name, quoted as SQL needs it."""
    return Statement(_ROLE, (role,))


def role_grants(role: str, kind: str) -> Statement:
    """The GRANT statements that a role needs for a kind of use, in order."""
    return Statement(_ROLE_GRANTS, (role, kind))


def allow(role: str, pattern: str, most: int | None) -> Statement:
    """Lets a role acquire the names of a pattern, so many at a time; 0 takes the rule away, None is any number."""
    return Statement(_ALLOW, (role, pattern, most))


def leases(*, resource: str | None = None, states: Sequence[str] | None = None, limit: int) -> Statement:
    """Leases by name; those of one resource, of some states, or all."""
    wanted = None if states is None else list(states)
    return Statement(_LEASES, (resource, resource, wanted, wanted, limit))


def history(*, resource: str | None, limit: int) -> Statement:
    """The newest `limit` events, oldest first; those of one resource, or all."""
    return Statement(_HISTORY, (resource, resource, limit))


def timeline(resource: str, since: datetime | None, until: datetime | None, limit: int) -> list[Statement]:
    """The newest events, violations and accepted writes that concern a resource, each oldest first."""
    between = (since, since, until, until)
    return [
        Statement(_TIMELINE, (resource, resource, *between, limit)),
        Statement(_TIMELINE_VIOLATIONS, (resource, resource, *between, limit)),
        Statement(_TIMELINE_ACCEPTED, (resource, *between)),
    ]
