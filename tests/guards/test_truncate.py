"""TRUNCATE touches every row and names none."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import (
    SCOPES,
    Scope,
    acquire,
    check_refusal,
    contents,
    forge,
    make_tables,
    present,
    protect,
    supersede,
)
from harness import Database, sqlstate

FORMS = [
    "truncate public.t",
    "truncate only public.t",
    "truncate public.t restart identity",
    "truncate public.t cascade",
    "truncate public.log, public.t",
    "truncate public.t, public.parent",
    "truncate public.parent cascade",
    "truncate public.parent restart identity cascade",
    "do $$ begin truncate public.t; end $$",
    "do $$ begin execute 'truncate public.t'; end $$",
]


@pytest.mark.parametrize("form", FORMS)
def test_truncate_needs_the_claim_of_a_table_scope(db: Database, form: str, isolation: psycopg.IsolationLevel) -> None:
    make_tables(db)
    protect(db, "public.t", SCOPES["table"].template)
    db.execute("insert into public.log values (1)")
    before = contents(db)
    stale = acquire(db, "nightly")
    lease, other = supersede(db, stale), acquire(db, "nightly2")
    connection = db.connect("app", isolation=isolation)
    for code, show, leases in (
        ("LF004", present, []),
        ("LF005", present, [other]),
        ("LF001", forge, [stale]),
    ):
        show(connection, *leases)
        with sqlstate(code) as refused:
            connection.execute(form)
        connection.rollback()
        check_refusal(refused.diag, table="t")
        assert contents(db) == before
    present(connection, lease)
    connection.execute(form)
    connection.commit()
    assert contents(db, "public.t") == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["row", "composite"])
def test_no_claims_on_single_rows_are_enough_to_truncate(db: Database, name: str, form: str) -> None:
    """Not even those on every row that is there: a row that nobody sees yet has an owner too."""
    scope: Scope = SCOPES[name]
    make_tables(db)
    protect(db, "public.t", scope.template)
    before = contents(db)
    leases = [acquire(db, resource) for resource in (*scope.mine, scope.other, "tenant:b:us")]
    connection = db.connect("app")
    for code, claims in (("LF004", []), ("LF005", leases)):
        present(connection, *claims)
        with sqlstate(code) as refused:
            connection.execute(form)
        connection.rollback()
        check_refusal(refused.diag, table="t")
        assert contents(db) == before


def test_truncate_restart_identity_that_is_refused_leaves_the_sequence(db: Database) -> None:
    db.execute("create table public.n (id int generated always as identity primary key, body text)")
    db.execute("insert into public.n (body) values ('a'), ('b')")
    protect(db, "public.n", "numbers")
    with sqlstate("LF004"):
        db.execute("truncate public.n restart identity")
    connection = db.connect("app")
    present(connection, acquire(db, "numbers"))
    ((number,),) = connection.execute("insert into public.n (body) values ('c') returning id").fetchall()
    assert number == 3


def test_the_owner_and_a_superuser_are_refused_like_everybody(db: Database, t: str) -> None:
    before = contents(db)
    for user in ("app_owner", "postgres", "outsider"):
        with sqlstate("LF004"):
            db.execute("truncate public.t", user=user)
        with sqlstate("LF004"):
            db.execute("delete from public.t", user=user)
    assert contents(db) == before
