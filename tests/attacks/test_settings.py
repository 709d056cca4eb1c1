"""Settings that any role may make for itself: none changes what a guard decides or makes an observed table refuse."""

from __future__ import annotations

import pytest
from guards.scene import Lease, acquire, contents, forge, present, protect
from harness import Connection, Database, sqlstate

SETTINGS = [
    {"standard_conforming_strings": "off", "backslash_quote": "on", "escape_string_warning": "off"},
    {"quote_all_identifiers": "on"},
    {"transform_null_equals": "on", "array_nulls": "off"},
    {"bytea_output": "escape", "datestyle": "SQL, DMY", "intervalstyle": "iso_8601", "timezone": "Asia/Kathmandu"},
    {"extra_float_digits": "-15", "xmloption": "document", "client_encoding": "LATIN1", "lc_numeric": "C"},
    {"row_security": "off", "check_function_bodies": "off", "plpgsql.extra_errors": "all"},
    {"enable_seqscan": "off", "enable_indexscan": "off", "plan_cache_mode": "force_generic_plan", "jit": "off"},
    {"enable_hashagg": "off", "enable_sort": "off", "enable_nestloop": "off", "jit": "off"},
    {"join_collapse_limit": "1", "from_collapse_limit": "1", "geqo_threshold": "2", "cursor_tuple_fraction": "0"},
    {"search_path": "pg_temp", "default_transaction_deferrable": "on", "constraint_exclusion": "on"},
    {"fence.claims": "x", "fence.claim": "x", "fence.noted": "x", "fence.moving": "x", "fence.anything": "x"},
    {"fence.claims": "\n\n", "fence.claim": ":,:,", "fence.noted": "\n", "fence.moving": " "},
]  # fmt: skip
ids = [next(iter(settings)) + str(number) for number, settings in enumerate(SETTINGS)]


def set_up(connection: Connection, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        connection.execute("select set_config(%s, %s, false)", (name, value))
    connection.commit()


@pytest.fixture
def t(db: Database) -> str:
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("insert into public.t values (1, 'old'), (2, 'old')")
    return "public.t"


@pytest.mark.parametrize("settings", SETTINGS, ids=ids)
def test_no_setting_changes_what_a_guard_decides(db: Database, t: str, settings: dict[str, str]) -> None:
    """Also not where the guard is made, or the doctor asked, in such a session."""
    owner = db.connect("app_owner")
    set_up(owner, settings)
    owner.execute("select fence.protect('public.t', %s, p_covering => 'all')", ("a'b\\:{id}",))
    owner.commit()
    errors = owner.execute("select code, object, detail from fence.audit() where severity = 'error'").fetchall()
    assert not errors, errors
    name = "a'b\\:1"
    lease = acquire(db, name)
    writer = db.connect("app")
    set_up(writer, settings)
    with sqlstate("LF005" if "fence.claims" in settings or "fence.claim" in settings else "LF004"):
        writer.execute("update public.t set body = 'new' where id = 1")
    writer.rollback()
    forge(writer, Lease(name, lease.token, "guess"))
    with sqlstate("LF006"):
        writer.execute("update public.t set body = 'new' where id = 1")
    writer.rollback()
    present(writer, lease)
    assert writer.execute("update public.t set body = 'new' where id = 1").rowcount == 1
    with sqlstate("LF005"), writer.transaction():
        writer.execute("update public.t set body = 'new' where id = 2")
    writer.commit()
    assert contents(db, t) == [(1, "new"), (2, "old")]
    assert db.execute("select object, detail from fence.audit() where severity = 'error'") == []


@pytest.mark.parametrize("settings", SETTINGS, ids=ids)
def test_an_observed_table_refuses_nobody_whatever_he_sets(db: Database, t: str, settings: dict[str, str]) -> None:
    protect(db, t, "row:{id}", p_mode="observe", p_writes="sequenced", p_covering="all", p_uncatchable=True)
    job = db.connect("outsider", options="-c lock_timeout=1ms")
    set_up(job, settings)
    for statement in (
        "update public.t set body = 'a'",
        "insert into public.t values (3, 'a')",
        "delete from public.t where id = 2",
    ):
        job.execute(statement)
    job.commit()
    assert len(contents(db, t)) == 2
    job.execute("truncate public.t")
    job.commit()


def test_an_observed_table_refuses_no_cursor_subtransaction_or_prepared_transaction(db: Database, t: str) -> None:
    protect(db, t, "row:{id}", p_mode="observe")
    job = db.connect("outsider")
    job.execute("declare c cursor for select id from public.t for update")
    job.execute("fetch 1 from c")
    job.execute("update public.t set body = 'a' where current of c")
    for _ in range(3):
        with job.transaction():
            job.execute("update public.t set body = 'b'")
    job.execute("prepare transaction 'observed'")
    finish = db.connect("outsider", autocommit=True)
    finish.execute("commit prepared 'observed'")
    assert contents(db, t) == [(1, "b"), (2, "b")]
    assert len(db.execute("select code from fence.violations", user="monitor")) == 1
