"""Sessions in replica role on trees, and what loaders leave behind."""

from __future__ import annotations

import pytest
from guards.scene import acquire, protect
from harness import Database
from trees.forest import PARTS, TEMPLATE, armed, attempt, copy_in, guard_triggers, plant, tenants


@pytest.mark.parametrize("template", [TEMPLATE, "nightly"])
def test_every_level_is_guarded_in_replica_role(db: Database, template: str) -> None:
    plant(db, template)
    db.execute("create table public.new partition of public.feb for values in ('z')")
    connection = db.connect("postgres", options="-c session_replication_role=replica")
    other = acquire(db, "something else")
    for part in PARTS:
        assert attempt(connection, f"update public.{part} set body = 'new'") == "LF004"
        assert attempt(connection, f"delete from public.{part}") == "LF004"
        assert attempt(connection, f"truncate public.{part}") == "LF004"
        refused = attempt(connection, f"delete from public.{part}", other)
        assert refused == "LF005" or (refused == 0 and part == "feb_b0")  # an empty one
    assert attempt(connection, "insert into public.new values (1, 'z', '2026-02-02')") == "LF004"
    assert attempt(connection, "insert into public.t values (1, 'z', '2026-02-02')", other) == "LF005"
    assert copy_in(connection, "jan", (1, "a", "2026-01-02")) == "LF004"
    if db.cluster.version >= 15:
        leases = tenants(db)
        merge = (
            "merge into public.t using (values (1)) v (n) on id = v.n when matched then update set day = '2026-02-05'"
        )
        if template == TEMPLATE:
            assert attempt(connection, merge, leases["b"]) == "LF005"
            assert attempt(connection, merge, leases["a"]) == 1


@pytest.mark.parametrize("table", ["t", "feb", "jan", "feb_b1"])
@pytest.mark.parametrize("which", ["all", "user"])
def test_triggers_switched_off_and_on_again(db: Database, table: str, which: str) -> None:
    plant(db)
    before = guard_triggers(db)
    db.execute(f"alter table public.{table} disable trigger {which}", user="postgres")
    assert not armed(db)
    db.execute(f"alter table public.{table} enable trigger {which}", user="postgres")
    assert not armed(db)
    ordinary = db.connect("app")
    assert attempt(ordinary, f"update public.{table} set body = 'new'") == "LF004"  # ORIGIN: for ordinary sessions
    assert db.execute("select fence.repair('public.t')") == [(1,)]
    assert armed(db)
    assert guard_triggers(db) == before
    protect(db, "public.t", TEMPLATE)
    assert guard_triggers(db) == before
