"""pg_upgrade from the oldest major that is there to the newest."""

from __future__ import annotations

import subprocess

import pytest
from ha.nodes import Stage, Tokens, majors, make_origin, programs_of

pytestmark = pytest.mark.ha


def test_pg_upgrade_takes_the_tokens_along_and_begins_a_lineage() -> None:
    found = sorted((int(major), bindir) for major, bindir in majors() if (bindir / "pg_upgrade").is_file())
    if len(found) < 2:
        pytest.skip("one major version only: nothing about pg_upgrade is shown")
    old_programs, new_programs = programs_of(found[0][1]), programs_of(found[-1][1])
    old_stage, new_stage = Stage(old_programs, None), Stage(new_programs, None)
    try:
        old_stage.origin = make_origin(old_stage)
        old = old_stage.primary("old")
        tokens = Tokens(before=old.tokens())
        holder = old.supersede()
        tokens.before.append(holder.token)
        old.stop()
        new = new_stage.node("new")
        same = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        checksums = ["--no-data-checksums"] if found[-1][0] >= 18 else []
        new_stage.run("initdb", "-D", str(new.data), *same, *checksums)
        done = subprocess.run(
            [
                new_programs.path("pg_upgrade"),
                *("-b", str(old_programs.bindir), "-B", str(new_programs.bindir)),
                *("-d", str(old.data), "-D", str(new.data), "-U", "postgres", "--no-sync"),
                *("-p", "50432", "-P", "50433", "-s", str(new_stage.workspace.path)),
            ],
            capture_output=True,
            text=True,
            timeout=110,
            **{**new_programs._process_options(), "cwd": str(new_stage.workspace.path)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        new.start()
        new.refuses(holder, "LF001")
        tokens.new = new.tokens()
        tokens.judge()
        old.start()  # copy mode leaves it startable: a destination refuses it
        tokens.old = old.tokens()
        tokens.new += new.tokens()
        tokens.judge()
    finally:
        for stage in (new_stage, old_stage):
            stage.close()
        for programs in (new_programs, old_programs):
            programs.close()
