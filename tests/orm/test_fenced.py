"""`fenced`: every transaction of a session or connection presents the claims."""

from __future__ import annotations

import gc
import logging
import pickle
import subprocess
import sys
import threading

import psycopg
import pytest
import sqlalchemy as sa
from harness import Database
from orm.model import Report, bodies, engine_over
from sqlalchemy import event, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.orm.exc import StaleDataError
from sqlalchemy.pool import NullPool

import pyfence
from pyfence.sqlalchemy import fenced, fenced_execute, translate_errors

SET_1 = update(Report).where(Report.id == 1)


def supersede(db: Database, resource: str = "report:1") -> None:
    """Gives the lease to somebody else."""
    db.execute("select fence.revoke(%s, 'test')", (resource,))
    db.execute("select granted from fence.acquire(%s)", (resource,), user="app")


def test_a_flush_is_covered_also_after_commit_and_rollback(db, engine, lease) -> None:
    with Session(engine) as session, fenced(session, lease):
        session.get_one(Report, 1).body = "first"
        session.commit()
        session.get_one(Report, 1).body = "second"
        session.rollback()
        session.get_one(Report, 1).body = "third"
        session.commit()
    assert bodies(db)[1] == "third"


def test_without_it_the_flush_is_refused(db, engine, lease) -> None:
    with Session(engine) as session:
        with fenced(session, lease):
            pass
        translate_errors(engine)
        session.get_one(Report, 1).body = "x"
        with pytest.raises(pyfence.ClaimMissing):
            session.commit()
    assert bodies(db)[1] == "old"


def test_a_transaction_that_is_open_already_is_covered(db, engine, lease) -> None:
    with Session(engine) as session:
        report = session.get_one(Report, 1)
        with fenced(session, lease):
            report.body = "new"
            session.flush()
        report.body = "newer"  # the transaction keeps its claims
        session.commit()
    assert bodies(db)[1] == "newer"


def test_savepoints(db, engine, lease) -> None:
    with Session(engine) as session, fenced(session, lease):
        with session.begin_nested():
            session.execute(SET_1.values(body="inner"))
        nested = session.begin_nested()
        session.execute(SET_1.values(body="lost"))
        nested.rollback()
        session.execute(SET_1.values(serial=7))
        session.commit()
    assert bodies(db)[1] == "inner"


def test_claims_that_a_savepoint_took_away_are_presented_again(db, engine, lease) -> None:
    with Session(engine) as session:
        session.execute(select(Report))
        nested = session.begin_nested()
        with fenced(session, lease):
            session.execute(SET_1.values(body="lost"))
            nested.rollback()
            session.execute(SET_1.values(body="outer"))
            session.commit()
    with engine.connect() as conn:
        conn.execute(select(1))
        nested = conn.begin_nested()
        with fenced(conn, lease):
            nested.rollback()
            conn.execute(SET_1.values(serial=7))
            conn.commit()
    assert bodies(db)[1] == "outer"
    assert db.execute("select serial from public.report where id = 1") == [(7,)]


def test_it_costs_one_statement_a_transaction(db, engine, lease) -> None:
    sent = []
    with Session(engine) as session, fenced(session, lease):
        for _ in range(3):
            with session.begin_nested():
                session.execute(SET_1.values(body="x"))
        sent = session.execute(text("select pg_catalog.current_setting('fence.claims')")).scalar_one()
    assert sent.count("\n") <= 2, sent


WAYS = {
    "bulk insert": lambda s, body: s.execute(insert(Report), [{"id": ord(c), "body": body} for c in body]),
    "returning": lambda s, body: s.scalars(
        insert(Report).returning(Report.serial), [{"id": len(body) * 5000 + n, "body": body} for n in range(2000)]
    ).all(),
    "bulk update": lambda s, body: s.execute(
        update(Report), [{"id": n, "body": body, "version": len(body)} for n in (1, 2)]
    ),
    "core": lambda s, body: s.execute(Report.__table__.update().where(Report.id == 1).values(body=body)),
    "text": lambda s, body: s.execute(text("update report set body = :b where id = 1"), {"b": body}),
    "upsert": lambda s, body: s.execute(
        upsert(Report).values(id=1, version=1).on_conflict_do_update(index_elements=["id"], set_={"body": body})
    ),
    "merge": lambda s, body: s.merge(Report(id=1, body=body)),
    "delete": lambda s, body: s.delete(s.get_one(Report, len(body))),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing(db, engine, fence, way) -> None:
    db.execute("select fence.protect('public.report', 'all-reports')")
    lease = fence.acquire("all-reports")
    before = bodies(db)
    with Session(engine) as session:
        with fenced(session, lease):
            WAYS[way](session, "n")
            session.commit()
        after = bodies(db)
        assert after != before
        with pytest.raises(pyfence.ClaimMissing):  # and every one of them is refused without
            WAYS[way](session, "no")
            session.commit()
    assert bodies(db) == after


def test_refusals_are_of_both_kinds_and_the_session_goes_on(db, engine, fence, lease) -> None:
    with Session(engine) as session, fenced(session, lease):
        report = session.get_one(Report, 2)
        report.body = "x"
        with pytest.raises(pyfence.WrongResource) as refused:
            session.flush()
        error = refused.value
        assert isinstance(error, DatabaseError)
        assert isinstance(error.__cause__, psycopg.Error)
        assert error.orig is error.__cause__
        assert error.table == "report"
        assert error.detail
        assert error.hint
        assert "UPDATE report" in str(error)
        assert "[LF005]" in str(error)
        assert lease.claim.secret not in str(error) + repr(error)
        again = pickle.loads(pickle.dumps(error))
        assert isinstance(again, pyfence.WrongResource)
        assert isinstance(again, DBAPIError)
        session.rollback()
        session.get_one(Report, 1).body = "after"
        session.commit()
    assert bodies(db) == {1: "after", 2: "old", 3: "old", 4: "old"}


def test_uncatchable_refusals_are_the_same_classes(db, engine, lease) -> None:
    db.execute("select fence.protect('public.report', 'report:{id}', p_uncatchable => true)")
    with Session(engine) as session, fenced(session, lease):
        with pytest.raises(pyfence.WrongResource) as refused:
            session.execute(update(Report).where(Report.id == 2).values(body="x"))
        assert isinstance(refused.value, DBAPIError)
        assert refused.value.orig.sqlstate == "P0004"
        session.rollback()
        session.execute(SET_1.values(body="mine"))
        session.commit()
    assert bodies(db)[1] == "mine"


def test_observed_writes_are_not_refused(db, engine, lease) -> None:
    db.execute("select fence.protect('public.report', 'report:{id}', p_mode => 'observe')")
    with Session(engine) as session:
        session.execute(SET_1.values(body="unaware"))
        session.commit()
        with fenced(session, lease):
            session.execute(update(Report).where(Report.id == 2).values(body="uncovered"))
            session.commit()
    assert bodies(db) == {1: "unaware", 2: "uncovered", 3: "old", 4: "old"}


def test_a_superseded_lease_ends_the_next_transaction(db, engine, lease, caplog) -> None:
    caplog.set_level(logging.DEBUG, "sqlalchemy")
    with Session(engine) as session:
        with fenced(session, lease):
            session.get_one(Report, 1)
            session.commit()
            supersede(db)
            with pytest.raises(pyfence.StaleToken) as refused:
                session.get_one(Report, 1).body = "x"
            assert isinstance(refused.value, DBAPIError)
            assert refused.value.resource == "report:1"
            assert lease.claim.secret not in str(refused.value)
            session.rollback()
            with pytest.raises(pyfence.StaleToken):
                session.get_one(Report, 1).body = "x"
            session.rollback()
        assert session.get_one(Report, 1).body == "old"
    assert lease.claim.secret not in caplog.text


def test_an_autoflush_that_is_refused_says_so(db, engine, lease) -> None:
    with Session(engine) as session, fenced(session, lease):
        session.get_one(Report, 2).body = "x"
        with pytest.raises(pyfence.WrongResource) as refused:
            session.scalars(select(Report)).all()
    assert any("autoflush" in note for note in refused.value.__notes__)


def test_a_stale_version_is_still_a_stale_version(db, engine, lease) -> None:
    with Session(engine) as session, fenced(session, lease):
        report = session.get_one(Report, 1)
        with fenced_raw(db, lease) as raw:
            raw.execute("update public.report set version = version + 1 where id = 1")
        report.body = "x"
        with pytest.raises(StaleDataError):
            session.commit()
        session.rollback()
    with Session(engine) as session, fenced(session, lease):
        with pytest.raises(IntegrityError) as duplicate:
            session.execute(insert(Report).values(id=1, body="x", version=1))
        assert not isinstance(duplicate.value, pyfence.FenceError)


def fenced_raw(db: Database, lease: pyfence.Lease):
    """The same lease in another transaction."""
    return lease.transaction()


@pytest.mark.parametrize("where", ["query", "update", "delete", "upsert", "text"])
def test_statements_that_skip_the_version_are_stopped_by_the_guard(db, engine, lease, where) -> None:
    session = Session(engine)
    with fenced(session, lease):
        session.connection()
        session.rollback()
    supersede(db)
    with pytest.raises(pyfence.ClaimMissing):
        {
            "query": lambda: session.query(Report).filter_by(id=1).update({"body": "x"}),
            "update": lambda: session.execute(SET_1.values(body="x")),
            "delete": lambda: session.execute(sa.delete(Report).where(Report.id == 1)),
            "upsert": lambda: session.execute(
                upsert(Report)
                .values(id=1, body="x", version=1)
                .on_conflict_do_update(index_elements=["id"], set_={"body": "x"})
            ),
            "text": lambda: session.execute(text("update report set body = 'x'")),
        }[where]()
    session.close()
    assert bodies(db)[1] == "old"


def test_a_connection(db, engine, lease) -> None:
    with engine.connect() as conn, fenced(conn, lease):
        for body in ("first", "second"):
            conn.execute(SET_1.values(body=body))
            with conn.begin_nested():
                conn.execute(SET_1.values(serial=1))
            conn.commit()
        supersede(db)
        for _ in range(2):
            with pytest.raises(pyfence.StaleToken):
                conn.execute(select(1))
            conn.rollback()
    with engine.connect() as conn:
        assert conn.execute(select(Report.body).where(Report.id == 1)).scalar_one() == "second"
    with engine.begin() as conn, pytest.raises(pyfence.StaleToken), fenced(conn, lease):
        pass


def test_several_leases_and_a_scoped_session(db, engine, fence, lease) -> None:
    other = fence.acquire("report:2")
    session = scoped_session(sessionmaker(engine))
    with fenced(session, other, lease):
        assert session.execute(update(Report).where(Report.id < 3).values(body="both")).rowcount == 2
        session.commit()
    session.remove()
    with Session(engine) as session, fenced(session, lease), fenced(session, other):  # nested blocks add up
        session.execute(update(Report).where(Report.id < 3).values(body="again"))
        session.commit()
    assert bodies(db)[2] == "again"


def test_autocommit_fails_closed(db, lease) -> None:
    for engine in (
        engine_over(db, poolclass=NullPool, isolation_level="AUTOCOMMIT"),
        engine_over(db, poolclass=NullPool).execution_options(isolation_level="AUTOCOMMIT"),
    ):
        with Session(engine) as session, fenced(session, lease):
            with pytest.raises(pyfence.BadArgument, match="AUTOCOMMIT") as refused:
                session.get(Report, 1)
            assert "isolation_level" in refused.value.hint
        with engine.connect() as conn, fenced(conn, lease), pytest.raises(pyfence.BadArgument, match="AUTOCOMMIT"):
            conn.execute(SET_1.values(body="x"))
        with Session(engine) as session, pytest.raises(pyfence.BadArgument, match="AUTOCOMMIT"):
            fenced_execute(session, SET_1.values(body="x"), lease)
    assert bodies(db)[1] == "old"


def test_two_phase_transactions(db, engine, lease) -> None:
    with Session(engine, twophase=True) as session, fenced(session, lease):
        session.get_one(Report, 1).body = "prepared"
        session.commit()
    assert bodies(db)[1] == "prepared"
    with engine.connect() as conn, fenced(conn, lease):
        for body in ("first", "second"):
            with conn.begin_twophase():
                conn.execute(SET_1.values(body=body))
            with conn.begin():
                conn.execute(SET_1.values(serial=1))
        supersede(db)
        with pytest.raises(pyfence.StaleToken), conn.begin_twophase():
            conn.execute(SET_1.values(body="x"))
    assert bodies(db)[1] == "second"


def test_a_session_that_joins_an_outer_transaction(db, engine, lease) -> None:
    """What test suites do: everything in one transaction that is rolled back."""
    with engine.connect() as conn:
        outer = conn.begin()
        with Session(conn, join_transaction_mode="create_savepoint") as session, fenced(session, lease):
            for _ in range(2):
                session.get_one(Report, 1).body = "new"
                session.commit()
                session.execute(SET_1.values(body="newer"))
                session.rollback()
            assert session.get_one(Report, 1).body == "new"
        outer.rollback()
    assert bodies(db)[1] == "old"


def test_a_session_over_several_databases(db, engine, lease) -> None:
    class Other(Report.__base__.__base__):  # a DeclarativeBase of its own
        pass

    table = sa.Table("note", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
    lite = sa.create_engine("sqlite://")
    table.create(lite)
    with Session(binds={Report: engine, table: lite}) as session:
        with fenced(session, lease, bind=engine):
            session.execute(insert(table).values(id=1))
            session.get_one(Report, 1).body = "new"
            session.commit()
        session.execute(select(table))
        with pytest.raises(pyfence.BadArgument, match="several databases"), fenced(session, lease):
            pass
        with fenced(session, lease, bind=engine):
            session.execute(SET_1.values(body="newer"))
            session.commit()
        with fenced(session, lease), pytest.raises(pyfence.BadArgument, match="sqlite"):
            session.execute(select(table))
    lite.dispose()
    assert bodies(db)[1] == "newer"


def test_a_lost_connection_is_sqlalchemys_error_and_the_pool_gets_over_it(db, engine, lease) -> None:
    for make in (lambda: Session(engine), engine.connect):
        with make() as target, fenced(target, lease):
            target.execute(SET_1.values(body="before"))
            target.commit()
            db.cluster.admin.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = 'app'"
            )
            with pytest.raises(OperationalError) as lost:
                target.execute(SET_1.values(body="x"))
            assert isinstance(lost.value.__cause__, psycopg.Error)
            target.rollback()
            target.execute(SET_1.values(body="after"))
            target.commit()
    assert bodies(db)[1] == "after"


def test_bad_arguments(engine, lease) -> None:
    with pytest.raises(pyfence.BadArgument, match="Engine"):
        fenced(engine, lease)  # type: ignore[arg-type]
    session = Session(engine)
    with pytest.raises(pyfence.BadArgument, match="no lease"):
        fenced(session)
    with pytest.raises(pyfence.BadArgument, match="not a lease"):
        fenced(session, "report:1")  # type: ignore[arg-type]
    with fenced(session, lease) as block, pytest.raises(pyfence.BadArgument, match="entered already"), block:
        pass
    with pytest.raises(pyfence.BadArgument, match="writes"):
        fenced_execute(session, select(Report), lease)


def test_fenced_execute(db, engine, fence, lease) -> None:
    with Session(engine) as session:
        assert fenced_execute(session, SET_1.values(body="new"), lease) == 1
        assert fenced_execute(session, update(Report).where(Report.id == 99).values(body="x"), lease) == 0
        assert fenced_execute(session, text("update report set body = :b where id = 1"), lease, {"b": "text"}) == 1
        with pytest.raises(pyfence.WrongResource):
            fenced_execute(session, update(Report).values(body="x"), lease)
        session.rollback()
        fenced_execute(session, SET_1.values(body="kept"), lease)
        session.commit()
        with pytest.raises(pyfence.ClaimMissing):  # the claim was that transaction's
            session.execute(SET_1.values(body="x"))
    with engine.begin() as conn:
        assert fenced_execute(conn, SET_1.values(serial=5), lease) == 1
    db.execute("select fence.protect('public.report', 'all')")
    rows = [{"id": n, "body": "new", "version": 1} for n in range(10, 2010)]
    with Session(engine) as session:
        every = fence.acquire("all")
        assert fenced_execute(session, insert(Report), every, rows) == 2000
        session.rollback()
        assert fenced_execute(session, insert(Report).returning(Report.serial), every, rows) == 2000
    assert bodies(db)[1] == "kept"


def test_sequences(db, engine, fence) -> None:
    db.execute("select fence.protect('public.report', 'report:{id}', p_writes => 'sequenced')")
    lease = fence.acquire("report:1")
    with Session(engine) as session:
        assert fenced_execute(session, SET_1.values(body="1"), lease, sequence=1) == 1
        session.commit()
        with pytest.raises(pyfence.DuplicateWrite) as twice:
            fenced_execute(session, SET_1.values(body="again"), lease, sequence=1)
        assert not isinstance(twice.value, IntegrityError)
        session.rollback()
        with fenced(session, lease.claim.with_sequence(2)):
            session.execute(SET_1.values(body="2"))
            session.commit()
    assert bodies(db)[1] == "2"


def test_twenty_threads_send_the_same_write_and_it_is_made_once(db, engine, fence) -> None:
    db.execute("select fence.protect('public.report', 'report:{id}', p_writes => 'sequenced')")
    lease = fence.acquire("report:1")
    many = engine_over(db, pool_size=20)
    start = threading.Barrier(20)

    def send(number: int) -> object:
        with Session(many) as session:
            session.connection()
            start.wait(30)
            try:
                changed = fenced_execute(session, SET_1.values(body=str(number)), lease, sequence=1)
                session.commit()
            except pyfence.DuplicateWrite as twice:
                return type(twice.orig)
            return changed

    outcomes = [call.result(60) for call in [db.in_thread(send, number) for number in range(20)]]
    assert outcomes.count(1) == 1
    assert outcomes.count(psycopg.DatabaseError) == 19
    assert bodies(db)[1] == str(outcomes.index(1))
    with Session(many) as session:
        assert fenced_execute(session, SET_1.values(body="next"), lease, sequence=2) == 1
        session.commit()
        with pytest.raises((pyfence.DuplicateWrite, pyfence.SequenceError)):  # a late one undoes nothing
            fenced_execute(session, SET_1.values(body="late"), lease, sequence=1)
    many.dispose()
    assert bodies(db)[1] == "next"


def test_errors_are_translated_only_where_asked(db, engine, lease) -> None:
    def refused() -> type:
        with Session(engine) as session, pytest.raises(DBAPIError) as error:
            session.execute(SET_1.values(body="x"))
        return type(error.value)

    assert refused() is DatabaseError
    translate_errors(engine)
    translate_errors(engine.execution_options(isolation_level="SERIALIZABLE"))
    assert issubclass(refused(), pyfence.ClaimMissing)
    assert len(list(engine.dialect.dispatch.handle_error)) == 1


def test_nothing_stays_on_the_session(engine, lease) -> None:
    session = Session(engine)
    with fenced(session, lease):
        assert len(list(session.dispatch.after_begin)) == 1
    assert not list(session.dispatch.after_begin)
    with pytest.raises(ZeroDivisionError), fenced(session, lease):
        raise ZeroDivisionError
    assert not list(session.dispatch.after_begin)
    session.close()
    gc.collect()


def test_importing_registers_nothing() -> None:
    code = """
import sqlalchemy.event.registry as registry
import sqlalchemy.orm, sqlalchemy.ext.asyncio
before = len(registry._key_to_collection)
import pyfence.sqlalchemy
assert len(registry._key_to_collection) == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_listener_of_the_application_that_writes_first_is_refused_not_passed(db, engine, lease) -> None:
    session = Session(engine)

    @event.listens_for(session, "after_begin")
    def audit(session, transaction, connection) -> None:
        connection.execute(text("update report set body = 'early' where id = 1"))

    with fenced(session, lease), pytest.raises(DBAPIError):
        session.execute(select(1))
    session.close()
    assert bodies(db)[1] == "old"
