"""Guards that change under readers, writers, grants and each other: nobody waits for long, nobody innocent fails."""

from __future__ import annotations

import time
from typing import Any

import pytest
from guards.scene import acquire, check_refusal, present, protect
from harness import SUPERUSER, Database, sqlstate, wait_until


@pytest.fixture
def t(db: Database) -> str:
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("insert into public.t values (1, 'old'), (2, 'old')")
    protect(db, "public.t", "row:{id}")
    return "public.t"


def everything(db: Database) -> list[Any]:
    """All that a change of a guard could leave."""
    return [
        db.execute(query, user="fence_owner")
        for query in (
            "select g::text from fence._guard g order by id",
            "select h::text from fence._history h order by id",
            "select proname, prosrc from pg_proc where pronamespace = 'fence'::regnamespace order by 1",
            "select tgrelid, pg_get_triggerdef(oid), tgenabled from pg_trigger order by tgrelid, tgname",
        )
    ]


# -- a trigger has to go: ACCESS EXCLUSIVE -----------------------------------------------------------------------------

STRAY = 'create trigger "0_fence_stray" before delete on public.t for each statement execute function fence._guard_1()'
#: A constraint trigger in a guard's place cannot be replaced.
DEFERRED = (
    'drop trigger "0_fence_move" on public.t; create constraint trigger "0_fence_move" after update on public.t '
    "for each row execute function fence._guard_1()"
)
DROPPING = {
    "other policy": ("select", "protect('public.t', 'row:{id}', p_inserts => 'allow')"),
    "other scope": ("select", "protect('public.t', 'nightly')"),
    "set_mode": (STRAY, "set_mode('public.t', 'observe')"),
    "repair": (DEFERRED, "repair('public.t')"),
}


@pytest.mark.parametrize("kind", list(DROPPING))
def test_readers_pass_a_change_that_drops_a_trigger(db: Database, t: str, kind: str) -> None:
    """It waits for them with nothing in hand: they may write, too, and it is done when they are."""
    before, call = DROPPING[kind]
    db.execute(before)
    owner, reader = db.connect("app_owner", autocommit=True), db.connect("app")
    present(reader, acquire(db, "row:1"))
    reader.execute("select from public.t")
    waiting = db.start_blocked(owner, f"select fence.{call}", by=reader)
    assert db.execute("select count(*) from public.t", user="app") == [(2,)]
    assert reader.execute("update public.t set body = 'new' where id = 1").rowcount == 1
    reader.commit()
    waiting.result(12)
    assert db.execute("select armed from fence.protected_tables") == [(True,)]


@pytest.mark.parametrize(
    "kind", ["other policy", *(pytest.param(kind, marks=pytest.mark.full) for kind in [*DROPPING][1:])]
)
def test_a_change_that_drops_a_trigger_gives_up_on_a_reader(db: Database, t: str, kind: str) -> None:
    before, call = DROPPING[kind]
    db.execute(before)
    owner, reader = db.connect("app_owner"), db.connect("app")
    reader.execute("select from public.t")
    found = everything(db)
    waiting = db.start_blocked(owner, f"select fence.{call}", by=reader)
    with sqlstate("55P03") as refused:
        waiting.result(12)
    check_refusal(refused.diag, table="t")
    owner.rollback()
    assert everything(db) == found


def test_readers_go_on_where_no_trigger_is_dropped(db: Database, t: str) -> None:
    reader = db.connect("app")
    reader.execute("select from public.t")
    protect(db, t, "row:{id}", p_expiry="until_superseded")
    db.execute("select fence.set_mode('public.t', 'observe')")


# -- what pyfence's own tables are waited for --------------------------------------------------------------------------

EXEMPT = "select fence.exempt('public.t', 'app', now() + interval '1 h', 'staged')"
RENEW = "select fence._renew_guard_functions()"
BROKEN = 'alter table public.t disable trigger "0_fence_insert"'
#: What somebody has open, as whom, and what is called meanwhile.
IN_THE_WAY = {
    "exempt, unprotect": (EXEMPT, "app_owner", "unprotect('public.t')"),
    "exempt, unexempt": (EXEMPT, "app_owner", "unexempt('public.t', 'app')"),
    "migration, unprotect": (RENEW, "fence_owner", "unprotect('public.t')"),
    "migration, protect": (RENEW, "fence_owner", "protect('public.t', 'other:{id}')"),
    "migration, set_mode": (RENEW, "fence_owner", "set_mode('public.t', 'observe')"),
    "grant, covering": ("select fence.enter('another')", "app", "protect('public.t', 'row:{id}', p_covering => 'all')"),
    "holder, covering": ("select fence.enter('all')", "app", "protect('public.t', 'row:{id}', p_covering => 'all')"),
}


@pytest.mark.parametrize("kind", list(IN_THE_WAY))
def test_the_table_is_let_go_of_while_something_else_is_waited_for(db: Database, t: str, kind: str) -> None:
    statement, user, call = IN_THE_WAY[kind]
    if "unexempt" in call:
        db.execute(statement)
    other, owner = db.connect(user), db.connect("app_owner", autocommit=True)
    other.execute(statement)
    waiting = db.start_blocked(owner, f"select fence.{call}", by=other)
    writer = db.connect("outsider", autocommit=True)
    writer.execute("set statement_timeout = '900 ms'")
    assert writer.execute("select count(*) from public.t").fetchall() == [(2,)]
    with sqlstate("LF004"):
        writer.execute("update public.t set body = 'new'")
    other.commit()
    waiting.result(12)


@pytest.mark.parametrize(
    "kind",
    [
        "grant, covering",
        *(pytest.param(kind, marks=pytest.mark.full) for kind in ["exempt, unprotect", "migration, protect"]),
    ],
)
def test_it_gives_up_on_what_stays_in_the_way(db: Database, t: str, kind: str) -> None:
    statement, user, call = IN_THE_WAY[kind]
    other, owner = db.connect(user), db.connect("app_owner")
    found = everything(db)
    other.execute(statement)
    waiting = db.start_blocked(owner, f"select fence.{call}", by=other)
    with sqlstate("55P03") as refused:
        waiting.result(12)
    check_refusal(refused.diag, table="t")
    owner.rollback()
    other.rollback()
    assert everything(db) == found


@pytest.mark.parametrize("entered", ["row:1", "all"])
def test_a_job_that_goes_on_to_the_table_does_not_deadlock_with_a_new_covering(
    db: Database, t: str, entered: str
) -> None:
    job, owner = db.connect("app"), db.connect("app_owner", autocommit=True)
    job.execute("select fence.enter('row:1')")
    if entered == "all":
        job.rollback()
        job.execute("select fence.present(%s, %s, %s)", acquire(db, "all").parameters)
    waiting = db.start_blocked(owner, "select fence.protect('public.t', 'row:{id}', p_covering => 'all')", by=job)
    update = "update public.t set body = 'new' where id = 1"
    if entered == "all":
        with sqlstate("LF005"):
            job.execute(update)
        job.rollback()
    else:
        assert job.execute(update).rowcount == 1
        job.commit()
    waiting.result(12)


def test_repair_waits_for_a_migration_and_keeps_what_it_made(db: Database, t: str) -> None:
    db.execute(BROKEN)
    migration, owner = db.connect("fence_owner"), db.connect("app_owner", autocommit=True)
    migration.execute(RENEW)
    waiting = db.start_blocked(owner, "select fence.repair('public.t')", by=migration)
    migration.commit()
    assert waiting.result(12).fetchall() == [(1,)]


def test_a_migration_waits_for_repair_and_makes_every_function_anew(db: Database, t: str) -> None:
    db.execute(BROKEN)
    migration, owner = db.connect("fence_owner"), db.connect("app_owner")
    notices: list[str] = []
    migration.add_notice_handler(lambda diag: notices.append(str(diag.message_primary)))
    owner.execute("select fence.repair('public.t')")
    waiting = db.start_blocked(migration, RENEW, by=owner)
    owner.commit()
    assert waiting.result(12).fetchall() == [(1,)]
    assert notices == []


# -- functions that nothing uses any more ------------------------------------------------------------------------------


def guard_functions(db: Database) -> list[str]:
    return [
        name
        for (name,) in db.execute(
            "select proname::text from pg_proc where pronamespace = 'fence'::regnamespace "
            "and proname ~ '^_guard_[0-9]+$' order by proname"
        )
    ]


def test_protect_leaves_no_function_of_a_guard_that_it_takes_over(db: Database, t: str) -> None:
    db.execute("create table public.p (id int not null, body text) partition by list (id)")
    db.execute("alter table public.p attach partition public.t for values in (1, 2)")
    assert guard_functions(db) == ["_guard_1"]
    protect(db, "public.p", "row:{id}")
    ((guard,),) = db.execute("select id from fence.protected_tables")
    assert guard_functions(db) == [f"_guard_{guard}"]


def test_two_who_drop_what_nothing_uses_do_not_wait_for_each_other(db: Database, t: str) -> None:
    """The leftover is one's to drop, the other passes it by."""
    db.execute("create table public.u (id int primary key)")
    protect(db, "public.u", "u:{id}")
    db.execute("create function fence._guard_99() returns trigger language plpgsql as 'begin end'", user="fence_owner")
    one, two = db.connect("app_owner"), db.connect("app_owner")
    one.execute("select fence.unprotect('public.t')")
    two.execute("set statement_timeout = '10 s'")
    two.execute("select fence.unprotect('public.u')")
    one.commit()
    two.commit()
    assert guard_functions(db) == []


# -- several tables at once --------------------------------------------------------------------------------------------


def test_repair_of_several_tables_waits_with_no_table_in_hand(db: Database, t: str) -> None:
    """A writer of one that goes on to another does not deadlock: what is busy is left for a call of its own."""
    db.execute("create table public.u (id int primary key, body text)")
    db.execute("insert into public.u values (1, 'old')")
    protect(db, "public.u", "u:{id}")
    db.execute(BROKEN)
    db.execute(BROKEN.replace("public.t", "public.u"))
    writer, owner = db.connect("app"), db.connect("app_owner")
    notices: list[tuple[str, str]] = []
    owner.add_notice_handler(lambda diag: notices.append((str(diag.message_primary), str(diag.message_hint))))
    present(writer, acquire(db, "row:1"), acquire(db, "u:1"))
    writer.execute("update public.u set body = 'new'")
    owner.execute("set statement_timeout = '900 ms'")
    assert owner.execute("select fence.repair()").fetchall() == [(1,)]
    ((notice, hint),) = notices
    assert "public.u" in notice
    assert "55P03" in notice
    assert hint == "select fence.repair('public.u');"
    owner.commit()
    assert writer.execute("update public.t set body = 'new' where id = 1").rowcount == 1
    writer.commit()
    db.execute(hint)
    assert db.execute("select armed from fence.protected_tables") == [(True,), (True,)]


# -- the table goes, or gets another name ------------------------------------------------------------------------------

CALLS = {
    "protect": "protect('public.t', 'row:{id}')",
    "unprotect": "unprotect('public.t')",
    "set_mode": "set_mode('public.t', 'enforce')",
    "unexempt": "unexempt('public.t', 'app')",
    "repair": "repair('public.t')",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("ddl", "code"),
    [
        ("drop table public.t", "LF010"),
        ("alter table public.t rename to u", ""),
        ("alter table public.t rename to u; create table public.t ()", ""),
    ],
    ids=["drop", "rename", "swap"],
)
def test_the_table_goes_or_is_renamed_while_it_is_waited_for(
    db: Database, t: str, call: str, ddl: str, code: str
) -> None:
    db.execute(EXEMPT)
    db.execute(BROKEN)
    other, owner = db.connect("app_owner"), db.connect("app_owner")
    other.execute(ddl)
    waiting = db.start_blocked(owner, f"select fence.{call}", by=other)
    other.commit()
    if code:
        with sqlstate(code) as refused:
            waiting.result(10)
        check_refusal(refused.diag)
    else:
        waiting.result(10)
        locked = db.execute(
            "select distinct relation::regclass::text from pg_locks where pid = %s and mode ~ 'Exclusive' "
            "and relation = any (%s::text[]::regclass[])",
            (owner.info.backend_pid, ["public.u"] if "create" not in ddl else ["public.t", "public.u"]),
        )
        assert locked == [("public.u",)]
        owner.commit()
        guards = db.execute("select protected_table::text from fence.protected_tables")
        assert guards == ([] if call.startswith("unprotect") else [("public.u",)])


# -- a table that somebody has locked ----------------------------------------------------------------------------------


def test_who_looks_at_guards_does_not_wait_for_a_locked_table(db: Database, t: str) -> None:
    locking, looking = db.connect("app_owner"), db.connect("monitor", autocommit=True)
    locking.execute("lock table public.t in access exclusive mode")
    looking.execute("set statement_timeout = '5 s'")
    unarmed = "select value from fence.metrics where metric = 'guards_not_armed'"
    assert looking.execute("select armed from fence.protected_tables").fetchall() == [(None,)]
    assert looking.execute(unarmed).fetchall() == [(0,)]
    findings = looking.execute("select severity, code from fence.audit() where object = 'public.t'").fetchall()
    assert ("warning", "guard-unreadable") in findings


def test_repair_says_that_the_table_is_locked(db: Database, t: str) -> None:
    locking, owner = db.connect("app_owner"), db.connect("app_owner")
    locking.execute("lock table public.t in access exclusive mode")
    with sqlstate("55P03") as refused:
        db.start_blocked(owner, "select fence.repair('public.t')", by=locking).result(15)
    check_refusal(refused.diag, table="t")


@pytest.mark.parametrize("ddl", ["drop table public.t", "select fence.unprotect('public.t')"])
@pytest.mark.parametrize("view", ["protected_tables", "metrics"])
def test_who_looks_at_guards_survives_a_table_that_goes(db: Database, t: str, view: str, ddl: str) -> None:
    dropping, looking = db.connect("app_owner"), db.connect("monitor", autocommit=True)
    dropping.execute(ddl)
    waiting = db.start_blocked(looking, f"select * from fence.{view}", by=dropping)
    dropping.commit()
    assert waiting.result(10).rowcount > 0


def test_an_autovacuum_makes_way(db: Database, t: str) -> None:
    """PostgreSQL ends one for who has waited for deadlock_timeout; here it is what it is elsewhere, a second."""
    admin = db.cluster.admin
    slow = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_threshold = 1"
    running = "select from pg_stat_activity where backend_type = 'autovacuum worker' and query like '%%public.p1%%'"
    admin.execute("alter system set autovacuum_naptime = '1s'")
    admin.execute("select pg_reload_conf()")
    admin.execute("alter role app_owner set deadlock_timeout = '1s'")
    try:
        db.execute("create table public.p (id int, body text) partition by range (id)")
        db.execute(f"create table public.p1 partition of public.p for values from (0) to (9999999) with ({slow})")
        db.execute("insert into public.p select i, repeat('x', 500) from generate_series(1, 20000) i")
        db.execute("update public.p set body = body || 'y'")
        looking = db.connect(SUPERUSER, autocommit=True)

        def is_vacuumed() -> bool:
            db.execute("select")  # the writer tells what it has counted when it next ends a statement
            return bool(looking.execute(running).fetchall())

        wait_until(is_vacuumed, "an autovacuum of the partition", deadline=60)
        admin.execute("alter system reset autovacuum_naptime")  # the next one is to come in a minute, not in a second
        admin.execute("select pg_reload_conf()")
        db.connect("app_owner", autocommit=True).execute("select fence.protect('public.p', 'row:{id}')")
    finally:
        admin.execute("alter role app_owner reset deadlock_timeout")
        admin.execute("alter system reset autovacuum_naptime")
        admin.execute("select pg_reload_conf()")
    assert db.execute("select armed from fence.protected_tables where table_name = 'p'") == [(True,)]


def test_a_try_for_a_tree_is_as_short_as_one_for_a_table(db: Database, t: str) -> None:
    """lock_timeout counts anew for every partition; each has a writer here that ends before it is over."""
    db.execute("create table public.p (id int, body text) partition by list (id)")
    for number in range(6):
        db.execute(f"create table public.p{number} partition of public.p for values in ({number})")
    writers = [db.connect("outsider") for _ in range(6)]
    for number, writer in enumerate(writers):
        writer.execute(f"insert into public.p{number} values ({number})")
    owner, late = db.connect("app_owner", autocommit=True), db.connect("outsider", autocommit=True)
    protecting = db.start_blocked(owner, "select fence.protect('public.p', 'row:{id}')")
    began = time.monotonic()
    waiting = db.start_blocked(late, "insert into public.p values (0)", by=owner)
    for writer in writers[:4]:
        time.sleep(0.6)
        writer.commit()
    waiting.result(0)  # done by now: the tree was let go of after 0.9 s
    assert time.monotonic() - began < 5
    for writer in writers[4:]:
        writer.commit()
    protecting.result(20)


def test_a_part_is_dropped_while_another_is_waited_for(db: Database, t: str) -> None:
    db.execute("create table public.a (id int not null)")
    for number in (1, 2, 3):
        db.execute(f"create table public.c{number} () inherits (public.a)")
    db.execute("grant all on all tables in schema public to outsider")
    writer = db.connect("outsider")
    writer.execute("insert into public.c1 values (1)")
    owner = db.connect("app_owner", autocommit=True)
    protecting = db.start_blocked(owner, "select fence.protect('public.a', 'row:{id}')", by=writer)
    db.execute("drop table public.c3")
    writer.commit()
    protecting.result(20)
    assert db.execute("select armed from fence.protected_tables where table_name = 'a'") == [(True,)]


# -- a guard that is split ---------------------------------------------------------------------------------------------


@pytest.fixture
def tree(db: Database) -> Database:
    """A tree that is about to lose a partition, guard and all; protecting again gives the tree a guard of its own."""
    db.execute("create table public.p (id int, body text) partition by list (id)")
    for number in (1, 2):
        db.execute(f"create table public.p{number} partition of public.p for values in ({number})")
    protect(db, "public.p", "row:{id}")
    return db


DETACHING = "alter table public.p detach partition public.p1"
EXEMPTING = "select fence.exempt('public.p', 'outsider', now() + interval '1 hour', 'test')"


def test_an_exemption_goes_with_its_table(tree: Database) -> None:
    tree.execute(EXEMPTING)
    tree.execute(DETACHING)
    for _ in range(2):
        with sqlstate("LF004"):
            tree.execute("insert into public.p1 values (1)", user="outsider")
        tree.execute("insert into public.p values (2)", user="outsider")
        protect(tree, "public.p", "row:{id}")


@pytest.mark.parametrize("first", ["exempt", "protect"])
def test_an_exemption_that_is_given_meanwhile_is_not_lost(tree: Database, first: str) -> None:
    again = "select fence.protect('public.p', 'row:{id}')"
    one, two = tree.connect("app_owner"), tree.connect("app_owner", autocommit=True)
    if first == "exempt":
        one.execute(EXEMPTING)
        tree.execute(DETACHING)
        waiting = tree.start_blocked(two, again, by=one)
    else:
        tree.execute(DETACHING)
        one.execute(again)
        waiting = tree.start_blocked(two, EXEMPTING, by=one)
    one.commit()
    waiting.result(20)
    tree.execute("insert into public.p values (2)", user="outsider")
    with sqlstate("LF004"):
        tree.execute("insert into public.p1 values (1)", user="outsider")
    tree.execute("select fence.unexempt('public.p', 'outsider')")
