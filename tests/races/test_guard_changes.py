"""Guards that change under readers, writers, grants and each other: nobody waits for long, nobody innocent fails."""

from __future__ import annotations

from typing import Any

import pytest
from guards.scene import acquire, check_refusal, present, protect
from harness import Database, sqlstate


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
