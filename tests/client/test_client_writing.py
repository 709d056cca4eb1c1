"""Writing under a lease: in pyfence's transaction or the caller's, in one round trip, and never by accident."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy
from client.support import backends, body, source
from harness import Database, level
from proxy import Proxy
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

import pyfence
from pyfence.errors import translated

UPDATE = "update public.report set body = %s where id = %s"


@pytest.fixture
def engine(db: Database) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(db.url("app").replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


# -- lease.transaction() and fence.transaction() -----------------------------------------------------------------------


def test_a_transaction_is_committed_at_its_end(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1") as lease:
        with lease.transaction() as conn:
            assert isinstance(conn, psycopg.Connection)
            conn.execute(UPDATE, ("new", 1))
            assert body(db) == "old"
        assert body(db) == "new"


def test_a_transaction_is_rolled_back_when_its_block_raises(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1") as lease:
        with pytest.raises(ZeroDivisionError), lease.transaction() as conn:
            conn.execute(UPDATE, ("new", 1))
            raise ZeroDivisionError
        assert body(db) == "old"
        with pytest.raises(psycopg.errors.UniqueViolation), lease.transaction() as conn:
            conn.execute("insert into public.report values (1)")
        assert dict(backends(db)).keys()
        assert "idle in transaction" not in " ".join(dict(backends(db)).values())


def test_a_transaction_cannot_be_committed_in_its_middle(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1") as lease:
        with pytest.raises(psycopg.ProgrammingError), lease.transaction() as conn:
            conn.execute(UPDATE, ("new", 1))
            conn.commit()
        assert body(db) == "old"


def test_a_transaction_has_the_isolation_asked_for(
    db: Database, fence: pyfence.Fence, report: str, isolation: psycopg.IsolationLevel
) -> None:
    with fence.lease("report:1") as lease:
        for form in (isolation, isolation.name, level(isolation)):
            with lease.transaction(isolation=form) as conn:
                assert conn.execute("show transaction_isolation").fetchone() == (level(isolation),)
                conn.execute(UPDATE, (str(form), 1))
            with lease.transaction() as conn:
                assert conn.execute("show transaction_isolation").fetchone() == ("read committed",)
        with pytest.raises(pyfence.BadArgument):
            lease.transaction(isolation="chaos").__enter__()


def test_several_leases_in_one_transaction(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1") as a, fence.lease("report:2") as b:
        with fence.transaction(b, a) as conn:
            conn.execute("update public.report set body = 'both' where id in (1, 2)")
        assert (body(db, 1), body(db, 2)) == ("both", "both")
        with pytest.raises(pyfence.WrongResource), fence.transaction(a, b) as conn:
            conn.execute("update public.report set body = 'all'")
        assert body(db, 3) == "old"
        assert b.release()
        with pytest.raises(pyfence.LeaseLost), fence.transaction(a, b):
            pass
        with pytest.raises(pyfence.StaleToken), fence.transaction(a, b.claim):
            pass
    with pytest.raises(pyfence.BadArgument), fence.transaction():
        pass
    with pytest.raises(pyfence.BadArgument), fence.transaction("report:1"):  # type: ignore[arg-type]
        pass


def test_claims_are_presented_in_name_order(db: Database, fence: pyfence.Fence) -> None:
    names = ["b", "a", "Z", "ä", "a:1", "a:10", "a:2"]
    with fence.transaction(*[fence.acquire(name) for name in names]) as conn:
        waiting = conn.info.backend_pid
        assert waiting
    statement = pyfence._statements.present([pyfence.Claim(name, 1, "x") for name in names])  # type: ignore[attr-defined]
    assert statement.params[0] == sorted(names, key=str.encode)


def test_a_stale_lease_is_refused_at_once(db: Database, fence: pyfence.Fence, report: str) -> None:
    lease = fence.acquire("report:1")
    db.execute("select fence.revoke('report:1', 'test')")
    with pytest.raises(pyfence.StaleToken) as caught, lease.transaction():
        pytest.fail("the block ran")
    assert caught.value.resource == "report:1"
    assert isinstance(caught.value.__cause__, psycopg.DatabaseError)
    assert "idle in transaction" not in " ".join(dict(backends(db)).values())


def test_a_transaction_is_two_round_trips_of_its_own(db: Database, proxy: Proxy, report: str) -> None:
    with pyfence.Fence(proxy.url(db.url("app"))) as fence:
        lease, other = fence.acquire("report:1"), fence.acquire("report:2")
        with lease.transaction():
            pass
        before = proxy.round_trips
        for _ in range(10):
            with lease.transaction():
                pass
            with fence.transaction(lease, other):
                pass
        assert proxy.round_trips - before == 40


# -- fenced_update -----------------------------------------------------------------------------------------------------


def test_fenced_update_counts_rows(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1") as lease:
        assert lease.fenced_update("public.report", {"id": 1}, {"body": "new", "amount": 7}) == 1
        assert db.execute("select body, amount from public.report where id = 1") == [("new", 7)]
    with fence.lease("report:99") as lease:
        assert lease.fenced_update("public.report", {"id": 99}, {"body": "new"}) == 0


@pytest.mark.parametrize("kind", ["url", "pool", "engine"])
def test_fenced_update_is_one_round_trip_committed(db: Database, proxy: Proxy, report: str, kind: str) -> None:
    with source(kind, proxy.url(db.url("app"))) as where, pyfence.Fence(where) as fence:
        lease = fence.acquire("report:1")
        lease.fenced_update("public.report", {"id": 1}, {"body": "warm"})
        before = proxy.round_trips
        for number in range(12):  # more often than a driver needs to decide to prepare
            assert lease.fenced_update("public.report", {"id": 1}, {"body": str(number)}) == 1
        assert proxy.round_trips - before == 12
        assert body(db) == "11"
        with lease.transaction():
            pass
        with fence._backend.source.work(5) as conn:
            assert not conn.autocommit  # as it was


@pytest.mark.parametrize("rows", [psycopg.rows.tuple_row, dict_row])
def test_fenced_update_on_an_autocommit_connection_is_one_round_trip(
    db: Database, proxy: Proxy, fence: pyfence.Fence, report: str, rows: Any
) -> None:
    lease = fence.acquire("report:1")
    with psycopg.connect(proxy.url(db.url("app")), autocommit=True, row_factory=rows) as conn:
        before = proxy.round_trips
        for number in range(12):
            assert pyfence.fenced_update(conn, report, {"id": 1}, {"body": str(number)}, lease) == 1
        assert proxy.round_trips - before == 12
        assert body(db) == "11"


def test_fenced_update_joins_the_callers_transaction(db: Database, fence: pyfence.Fence, report: str) -> None:
    lease, other = fence.acquire("report:1"), fence.acquire("report:2")
    conn = db.connect("app")
    for end, expected in ((conn.rollback, "old"), (conn.commit, "new")):
        assert pyfence.fenced_update(conn, report, {"id": 1}, {"body": "new"}, lease) == 1
        assert pyfence.fenced_update(conn, report, {"id": 2}, {"body": "new"}, other) == 1
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        assert body(db) == "old"
        end()
        assert (body(db), body(db, 2)) == (expected, expected)
    auto = db.connect("app", autocommit=True)
    with pytest.raises(ZeroDivisionError), auto.transaction():
        pyfence.fenced_update(auto, report, {"id": 1}, {"body": "newer"}, lease)
        raise ZeroDivisionError
    assert body(db) == "new"


# -- on the caller's connection ----------------------------------------------------------------------------------------


def test_present_in_the_callers_transaction(db: Database, fence: pyfence.Fence, report: str) -> None:
    lease = fence.acquire("report:1")
    conn = db.connect("app")
    pyfence.present(conn, lease)
    conn.execute(UPDATE, ("one", 1))
    assert body(db) == "old"
    conn.rollback()
    with pytest.raises(pyfence.ClaimMissing), translated():
        conn.execute(UPDATE, ("unpresented", 1))
    conn.rollback()
    pyfence.present(conn, lease.claim)
    conn.execute(UPDATE, ("two", 1))
    conn.commit()
    assert body(db) == "two"


def test_present_needs_a_transaction(
    db: Database, fence: pyfence.Fence, report: str, engine: sqlalchemy.Engine
) -> None:
    lease = fence.acquire("report:1")
    auto = db.connect("app", autocommit=True)
    with pytest.raises(pyfence.BadArgument, match="inside a transaction") as caught:
        pyfence.present(auto, lease)
    assert caught.value.hint
    with auto.pipeline(), pytest.raises(pyfence.BadArgument):
        pyfence.present(auto, lease)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as sa, pytest.raises(pyfence.BadArgument):
        pyfence.present(sa, lease)
    with auto.transaction():
        pyfence.present(auto, lease)
        auto.execute(UPDATE, ("in a block", 1))
    assert body(db) == "in a block"
    with auto.pipeline(), auto.transaction():
        pyfence.present(auto, lease)
        auto.execute(UPDATE, ("in a pipeline", 1))
    assert body(db) == "in a pipeline"
    with pytest.raises(pyfence.ClaimMissing), translated():
        auto.execute(UPDATE, ("after it", 1))


@pytest.mark.parametrize("make", ["connection", "session"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_sqlalchemys_transaction_is_the_callers(
    db: Database, fence: pyfence.Fence, report: str, engine: sqlalchemy.Engine, make: str, end: str
) -> None:
    lease = fence.acquire("report:1")
    update = sqlalchemy.text("update public.report set body = :body where id = 1")
    with engine.connect() if make == "connection" else Session(engine) as sa:
        for _ in range(2):
            pyfence.present(sa, lease)
            assert sa.in_transaction()
            sa.execute(update, {"body": "mine"})
            getattr(sa, end)()
        assert body(db) == ("mine" if end == "commit" else "old")
        assert pyfence.fenced_update(sa, report, {"id": 1}, {"body": "joined"}, lease) == 1
        assert body(db) != "joined"
        getattr(sa, end)()
        assert body(db) == ("joined" if end == "commit" else "old")
        with sa.begin(), pytest.raises(pyfence.StaleToken):
            db.execute("select fence.revoke('report:1', 'test')")
            pyfence.present(sa, lease)


@pytest.mark.parametrize("wrong", [None, 1, "postgresql://", ...], ids=repr)
def test_not_a_connection(wrong: Any) -> None:
    with pytest.raises(pyfence.BadArgument, match="connection"):
        pyfence.present(wrong, pyfence.Claim("r", 1, "s"))
    with pytest.raises(pyfence.BadArgument):
        pyfence.present(wrong)


@pytest.mark.parametrize("cursor", [psycopg.ClientCursor, psycopg.RawCursor])
def test_a_secret_is_bound_whatever_cursors_the_connection_makes(
    db: Database, fence: pyfence.Fence, report: str, cursor: Any
) -> None:
    lease = fence.acquire("report:1")
    conn = db.connect("app", cursor_factory=cursor, row_factory=dict_row)
    pyfence.present(conn, lease)
    ((query,),) = db.cluster.admin.execute(
        "select query from pg_stat_activity where pid = %s", (conn.info.backend_pid,)
    ).fetchall()
    assert "fence.present" in query
    assert lease.claim.secret not in query
    assert pyfence.fenced_update(conn, report, {"id": 1}, {"body": "bound"}, lease) == 1
    conn.commit()
    assert body(db) == "bound"


def test_an_old_snapshot_stays_a_serialization_failure(db: Database, fence: pyfence.Fence, report: str) -> None:
    first = fence.acquire("report:1")
    conn = db.connect("app", isolation=psycopg.IsolationLevel.REPEATABLE_READ)
    conn.execute("select 1 from public.report")
    assert first.release()
    second = fence.acquire("report:1")
    with pytest.raises(psycopg.errors.SerializationFailure):
        pyfence.present(conn, second)
    conn.rollback()
    pyfence.present(conn, second)  # the retry
    conn.rollback()
    with pytest.raises(pyfence.StaleToken):  # and a stale owner's retry ends
        pyfence.present(conn, first.claim)


# -- nothing is left on a connection -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["url", "pool", "engine"])
@pytest.mark.parametrize("how", ["committed", "failed", "update", "present"])
def test_a_claim_does_not_stay_on_a_pooled_connection(db: Database, report: str, kind: str, how: str) -> None:
    with source(kind, db.url("app"), size=1) as where, pyfence.Fence(where) as fence:
        lease = fence.acquire("report:1")
        if how == "update":
            lease.fenced_update(report, {"id": 1}, {"body": "mine"})
        else:
            with suppress(ZeroDivisionError), lease.transaction() as conn:
                if how != "present":
                    conn.execute(UPDATE, ("mine", 1))
                if how != "committed":
                    raise ZeroDivisionError
        with fence._backend.source.work(5) as conn, pytest.raises(pyfence.ClaimMissing), translated():
            conn.execute(UPDATE, ("legacy", 1))
