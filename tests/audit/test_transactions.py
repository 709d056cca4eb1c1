"""Transactions that hold a lease and do not move; and the audit of an installation that is as it should be."""

from __future__ import annotations

from audit.findings import Finding, Stage
from guards.scene import acquire, present
from harness import SUPERUSER, Database, sqlstate

#: What an installation of these tests has and a DBA would not: see docs/dba/doctor.md.
KNOWN = {("warning", "schema-owner-can-login", "schema fence")}


def findings(db: Database, user: str = "monitor") -> list[Finding]:
    return [Finding(*map(str, row)) for row in db.execute("select * from fence.audit()", user=user)]


def test_a_good_installation_is_clean(stage: Stage) -> None:
    stage.run(SUPERUSER, "alter role app_owner nologin", "grant app_owner to monitor")
    assert {finding.short for finding in stage.audit()} == KNOWN


def test_only_readers_of_the_views_may_audit(db: Database) -> None:
    for user in ("app", "outsider"):
        with sqlstate("42501"):
            findings(db, user)
    assert findings(db, "app_owner") == findings(db)


def test_a_prepared_transaction_that_holds_a_lease_is_found(db: Database) -> None:
    lease = acquire(db, "nightly")
    holder = db.connect("app")
    present(holder, lease)
    holder.execute("prepare transaction 'it''s stuck'")
    holder.commit()
    other = db.connect("app")
    other.execute("create temporary table t ()")
    (found,) = [finding for finding in findings(db) if finding.code == "prepared-holds-lease"]
    assert found.short == ("warning", "prepared-holds-lease", "it's stuck")
    db.execute(found.remedy.rstrip(";"), user="app")
    assert "prepared-holds-lease" not in [finding.code for finding in findings(db)]


def test_a_prepared_transaction_without_a_lease_is_not(db: Database) -> None:
    db.execute("create table public.t (id int)")
    idle = db.connect("app")
    present(idle, acquire(db, "nightly"))
    other = db.connect("app")
    other.execute("insert into public.t values (1)")
    other.execute("prepare transaction 'harmless'")
    other.commit()
    assert "prepared-holds-lease" not in [finding.code for finding in findings(db)]


def idle_holders(db: Database, patience: str = "0 s", user: str = "monitor") -> list[Finding]:
    rows = db.execute("select * from fence._audit_sessions(%s::interval)", (patience,), user=user)
    return [Finding(*map(str, row)) for row in rows]


def test_a_session_that_holds_a_lease_and_is_idle_is_found(db: Database) -> None:
    lease = acquire(db, "nightly")
    assert idle_holders(db) == []
    holder = db.connect("app")
    present(holder, lease)
    pid = holder.info.backend_pid
    assert [finding.short for finding in idle_holders(db)] == [("info", "sessions-hidden", "pg_stat_activity")]
    assert [finding.short for finding in idle_holders(db, "1 h", SUPERUSER)] == []
    (found,) = idle_holders(db, user=SUPERUSER)
    assert found.short == ("warning", "idle-holds-lease", f"backend {pid}")
    assert found.remedy == f"select pg_terminate_backend({pid});"
    assert "sessions-hidden" in [finding.code for finding in findings(db)]
    holder.commit()
    assert idle_holders(db) == []


def test_the_remedy_for_hidden_sessions_shows_them(stage: Stage, tables: Database) -> None:
    holder = tables.connect("app")
    present(holder, acquire(tables, "hidden"))
    (hidden,) = [finding for finding in stage.audit() if finding.code == "sessions-hidden"]
    stage.run(SUPERUSER, hidden.remedy)
    shown = stage.rows("monitor", "select * from fence._audit_sessions('0 s')")
    assert [Finding(*map(str, row)).code for row in shown] == ["idle-holds-lease"]
    holder.rollback()
