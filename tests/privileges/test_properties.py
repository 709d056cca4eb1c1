"""What every function must be, told by the catalog alone: a second for a whole class of mistakes."""

from __future__ import annotations

import re

from harness import SUPERUSER, Database, install, sqlstate

#: The longest that a function waits for a lock of its own. `_guard_1` stands for what `protect` generates.
BOUNDS = {
    **dict.fromkeys(
        (
            "acquire",
            "allow",
            "enter",
            "exempt",
            "release",
            "renew",
            "renew_all",
            "revoke",
            "set_option",
        ),
        "2s",
    ),
    **dict.fromkeys(("_acquire_in_turn", "_decline"), "2s"),
    **dict.fromkeys(("present", "present_all", "_guard_1"), "5s"),
    "_lock_table": "900ms",
    "_stop_vacuum": "1500ms",
    **dict.fromkeys(("_audit_guard", "_guard_state"), "1s"),
    **dict.fromkeys(("_change_guard", "_drop_unused_functions"), "200ms"),
}
#: Locks, writes, clocks and statements made at run time: nothing for the snapshot of the statement that calls.
MOVING = re.compile(
    r"\b(?:insert into|update fence\.|delete from|for (?:no key )?update|for (?:key )?share"
    r"|clock_timestamp|pg_current_wal_lsn|set_config|execute )"
)
#: They read and report, and do so as of the statement that asks.
READERS = re.compile(r"^_?audit|^_trigger_faults$|^resource_for$|^_recorded_revision$")
#: Functions that others than the owner may call, and what they must not touch themselves.
GRANTED = """
    select p.proname::text, p.prosecdef from pg_proc p where p.pronamespace = 'fence'::regnamespace
    and exists (select from aclexplode(p.proacl) x where x.grantee <> p.proowner)
"""
RELATIONS = "select relname::text from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'r'"
#: What they need stands in the text of a statement.
BY_STRINGS = {"_recorded_revision"}
#: What needs the owner's rights is reached only with the codes of a guard's refusal, that is from a definer.
WITHIN_DEFINERS = {"_raise"}
#: Columns of the registry that hold one of a few words.
CHOICES = ("scope", "mode", "expiry", "writes", "inserts")
PINNED = "search_path=pg_catalog, pg_temp"


def sources(db: Database) -> dict[str, tuple[str, str]]:
    """Volatility and source, without comments and the text in quotes, of every function of pyfence."""
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("select fence.protect('public.t', 't:{id}')")
    rows = db.execute(
        "select proname::text, provolatile::text, prosrc from pg_proc where pronamespace = 'fence'::regnamespace",
        user="fence_owner",
    )
    quoted = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$", re.DOTALL)
    return {name: (volatility, quoted.sub("''", source)) for name, volatility, source in rows}


def test_what_locks_writes_or_looks_at_the_clock_is_volatile(db: Database) -> None:
    """And so is what calls such a function, at any distance; nothing else is."""
    functions = sources(db)
    moving = {name for name, (_, source) in functions.items() if MOVING.search(source) and not READERS.search(name)}
    callers = moving
    while callers:
        calls = re.compile(rf"\bfence\.(?:{'|'.join(map(re.escape, moving))})\(")
        callers = {name for name, (_, source) in functions.items() if calls.search(source) and not READERS.search(name)}
        callers -= moving
        moving = moving | callers
    assert {"acquire", "present", "_check_lease", "_guard_1"} <= moving
    assert {name for name, (volatility, _) in functions.items() if volatility == "v"} == moving


def test_who_runs_with_the_owners_rights_or_for_others_has_a_path_of_its_own(db: Database) -> None:
    """And every function that is called by name. Excepted: a constant, and what runs under the caller's own rights."""
    sources(db)
    open_path = db.execute(
        "select proname::text, prosecdef from pg_proc"
        " where pronamespace = 'fence'::regnamespace and %s <> all (coalesce(proconfig, '{}'))"
        " and (prosecdef or proname !~ '^_'"
        " or proname in ('_lock_table', '_stop_vacuum', '_change_guard', '_refuse_null_keys', '_own_tables_guard',"
        " '_role_grants'))",
        (PINNED,),
        user="fence_owner",
    )
    assert sorted(open_path) == [("fenced_update", False), ("schema_version", False)]


def test_no_function_waits_longer_for_a_lock_than_it_says(db: Database) -> None:
    sources(db)
    bounds = db.execute(
        "select p.proname::text, substr(setting, 14) from pg_proc p cross join unnest(p.proconfig) setting"
        " where p.pronamespace = 'fence'::regnamespace and starts_with(setting, 'lock_timeout=')",
        user="fence_owner",
    )
    assert dict(bounds) == BOUNDS


def test_public_has_no_right_and_only_the_tables_owner_may_make_triggers_with_a_guard(db: Database) -> None:
    sources(db)
    everybody = db.execute(
        "select p.oid::regprocedure::text from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x"
        " where p.pronamespace = 'fence'::regnamespace and x.grantee = 0"
        " union all select c.oid::regclass::text from pg_class c, aclexplode(c.relacl) x"
        " where c.relnamespace = 'fence'::regnamespace and x.grantee = 0",
        user="fence_owner",
    )
    assert everybody == []
    holders = db.execute(
        "select x.grantee::regrole::text from pg_proc p, aclexplode(p.proacl) x"
        " where p.oid = 'fence._guard_1()'::regprocedure and x.grantee <> p.proowner",
        user="fence_owner",
    )
    assert holders == [("app_owner",)]


def test_default_privileges_give_nothing_away(empty_db: Database) -> None:
    """A database may hand out rights to everything that is made in it: pyfence takes them back."""
    for kind in ("tables", "sequences", "functions"):
        empty_db.execute(f"alter default privileges for role fence_owner grant all on {kind} to public", user=SUPERUSER)
    install(empty_db.url("fence_owner"))
    given = empty_db.execute(
        "select c.oid::regclass::text, x.grantee::regrole::text, x.privilege_type"
        " from pg_class c, aclexplode(c.relacl) x where c.relnamespace = 'fence'::regnamespace and x.grantee = 0"
        " union all select p.proname::text, x.grantee::regrole::text, x.privilege_type"
        " from pg_proc p, aclexplode(p.proacl) x where p.pronamespace = 'fence'::regnamespace and x.grantee = 0",
        user=SUPERUSER,
    )
    assert given == []


def test_every_guard_fires_in_replica_sessions_too(db: Database) -> None:
    """On tables, on every level of a tree, on pyfence's own. Off are only clones where statements are checked."""
    db.execute("create table public.tree (id int) partition by range (id)")
    db.execute("create table public.part partition of public.tree for values from (0) to (10) partition by range (id)")
    db.execute("create table public.leaf partition of public.part for values from (0) to (5)")
    db.execute("select fence.protect('public.tree', 'tree:{id}')")
    sources(db)
    states = db.execute(
        "select t.tgrelid::regclass::text, t.tgname::text, t.tgenabled::text"
        " from pg_trigger t join pg_proc p on p.oid = t.tgfoid"
        " where p.pronamespace = 'fence'::regnamespace and not t.tgisinternal",
        user="postgres",
    )
    assert {table for table, _, _ in states} >= {
        "public.tree",
        "public.part",
        "public.leaf",
        "public.t",
        "fence._lease",
    }
    off = [row for row in states if row[2] != "A" and not (row[2] == "D" and row[1].startswith("0_fence_row"))]
    assert off == []


def test_pyfences_own_tables_are_guarded_against_every_kind_of_write(db: Database) -> None:
    """Before insert, update, delete and truncate, for the statement; and a row's token cannot go down."""
    found = db.execute(
        "select t.tgrelid::regclass::text, t.tgname::text, t.tgtype from pg_trigger t"
        " join pg_class c on c.oid = t.tgrelid where c.relnamespace = 'fence'::regnamespace and not t.tgisinternal",
        user="fence_owner",
    )
    guards = {table: kind for table, name, kind in found if name == "own_tables_guard"}
    assert set(guards) >= {"fence._authority", "fence._lease", "fence._guard", "fence._accepted", "fence._history"}
    assert set(guards.values()) == {2 + 4 + 8 + 16 + 32}
    growing = {(table, kind) for table, name, kind in found if name == "token_only_grows"}
    assert growing == {("fence._lease", 1 + 16), ("fence._covering", 1 + 16)}


def test_what_others_call_runs_with_the_owners_rights_exactly_where_it_needs_them(db: Database) -> None:
    """It needs them where it names a private table, or a function that is granted to nobody. Not less, and not more."""
    functions = sources(db)
    granted = {name for name, _ in db.execute(GRANTED, user="fence_owner")}
    definers = {name for name, definer in db.execute(GRANTED, user="fence_owner") if definer}
    tables = [name for (name,) in db.execute(RELATIONS, user="fence_owner")]
    private = re.compile(rf"\bfence\.(?:(?:{'|'.join(functions.keys() - granted)})\(|(?:{'|'.join(tables)})\b(?! ?\())")
    needing = {name for name in granted if private.search(functions[name][1])}
    assert definers - needing == BY_STRINGS
    assert needing - definers == WITHIN_DEFINERS


def test_pyfences_own_tables_hold_what_they_are_meant_to(db: Database) -> None:
    """Also where their owner writes them by hand."""
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("select fence.protect('public.t', 't:{id}')")
    db.execute("select fence.allow('app', 't:*', 3)")
    refused = {
        "_authority_one_check": "update fence._authority set one = false",
        "_option_value_check": "update fence._option set value = 'perhaps' where name = 'on_restart'",
        "_allowance_max_leases_check": "update fence._allowance set max_leases = 0",
        **{f"_guard_{c}_check": f"update fence._guard set {c} = 'x'" for c in CHOICES},
    }
    for constraint, statement in refused.items():
        with sqlstate("23514") as refusal:
            db.execute(statement, user="fence_owner")
        assert refusal.diag.constraint_name == constraint
    checks = "select conname::text from pg_constraint where connamespace = 'fence'::regnamespace and contype = 'c'"
    assert {name for (name,) in db.execute(checks, user="fence_owner")} == set(refused)
