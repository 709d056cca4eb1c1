"""The page on security names tests that are there, and the commands of the pages for DBAs are real ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.command import CommandLine
from harness import SUPERUSER, Database

ROOT = Path(__file__).parents[2]


def test_every_file_that_the_page_names_exists() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", ["dba/install.md", "dba/permissions.md", "dba/upgrade.md", "dba/uninstall.md"])
def test_every_command_has_the_options_that_the_page_gives_it(page: str) -> None:
    nowhere = CommandLine(None)
    text = (ROOT / "docs" / page).read_text("utf-8")
    commands = set(re.findall(r"pyfence ((?:role|migrate) [a-z]+|doctor|uninstall)((?: --[\w-]+)*)", text))
    assert commands
    for command, options in commands:
        shown = nowhere(*command.split(), "--help").out
        assert [option for option in options.split() if option not in shown] == []


def test_the_installation_of_the_page(empty_db: Database) -> None:
    """As a role with CREATE on the database and nothing else; the roles that it names are there already."""
    page = (ROOT / "docs" / "dba" / "install.md").read_text("utf-8")
    grants, commands = re.findall(r"^```(?:sql|console)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    empty_db.execute(f"alter database {empty_db.name} owner to postgres", user=SUPERUSER)
    empty_db.execute(f"revoke all on database {empty_db.name} from public, fence_owner", user=SUPERUSER)
    empty_db.execute(f"grant connect on database {empty_db.name} to public", user=SUPERUSER)
    create, grant = grants.strip().splitlines()
    assert create == "create role fence_owner login;"
    empty_db.execute(grant.replace("database app", f"database {empty_db.name}"), user=SUPERUSER)
    cli = CommandLine(empty_db.url("fence_owner"))
    ran = [line.removeprefix("$ pyfence ").split() for line in commands.splitlines() if line.startswith("$ pyfence ")]
    assert len(ran) == 5
    for arguments in ran:
        cli(*("monitor" if argument == "exporter" else argument for argument in arguments))
    assert empty_db.execute("select granted from fence.acquire('x')", user="app") == [(True,)]
