"""A dump of one major version restored into another."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from harness import FENCE_RIGHTS, ROLES, Cluster, Database, Postgresql
from restore.dumps import build, check, dump, load

from pyfence import _programs


def other_programs(version: int) -> list[tuple[int, Path]]:
    """Folders with programs of other majors, newest first."""
    found = []
    for bindir in filter(None, [_programs._wheel_bindir(), *_programs._system_bindirs()]):
        if not (bindir / "postgres").is_file() or not (bindir / "pg_dump").is_file():
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYFENCE_PG_BIN", str(bindir))
            programs = _programs.Programs()
            major = int(programs.version.split(".")[0].rstrip("abcdefghijklmnopqrstuvwxyz"))
            programs.close()
        if major != version:
            found.append((major, bindir))
    return sorted(found, reverse=True)


def test_a_dump_goes_to_another_major(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the older server to the newer one, with the newer one's pg_dump, as the manual says."""
    others = other_programs(db.cluster.version)
    if not others:
        pytest.skip("no programs of another major version")
    monkeypatch.setenv("PYFENCE_PG_BIN", str(others[0][1]))
    second = Cluster(Postgresql.launch())
    try:
        assert FENCE_RIGHTS.keys() <= ROLES.keys()
        if second.version > db.cluster.version:
            old, new = db, Database(second, empty=True)
        else:
            old, new = Database(second), Database(db.cluster, empty=True)
        scene = build(old)
        text = dump(new_programs(old, new))
        load(new, text)
        with psycopg.connect(new.url("postgres")) as connection:
            assert connection.info.server_version // 10000 > old.cluster.version
        check(new, scene)
        for database in {old, new} - {db}:
            database.close()
    finally:
        second.close()


class Dumped:
    """A database of one server, read by the programs of another."""

    def __init__(self, database: Database, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = database.url


def new_programs(old: Database, new: Database) -> Database:
    dumped: Database = Dumped(old, new.cluster)  # type: ignore[assignment]
    return dumped
