"""Reading the audit, and making faults as the role that can: in one transaction of a superuser's that acts as each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness import Connection
from psycopg.errors import Diagnostic

OWNER = "table_owner"
#: Logins that may act as a role that cannot log in itself.
LOGINS = {OWNER: "app_owner"}


class Finding(NamedTuple):
    """A row of fence.audit()."""

    severity: str
    code: str
    object: str
    detail: str
    remedy: str

    @property
    def short(self) -> tuple[str, str, str]:
        return self.severity, self.code, self.object


class Stage:
    """A transaction in which every role does its part; rolled back at the end."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.notices: list[str] = []
        connection.add_notice_handler(self._note)

    def close(self) -> None:
        self.connection.remove_notice_handler(self._note)

    def _note(self, notice: Diagnostic) -> None:
        self.notices.append(str(notice.message_primary))

    def run(self, role: str, *statements: str) -> None:
        """Run statements as a role."""
        for statement in statements:
            self.rows(role, statement)

    def rows(self, role: str, statement: str, params: Sequence[object] | None = None) -> list[tuple[object, ...]]:
        """Run one statement as a role and return its rows. After an error the transaction is as before it."""
        with self.connection.transaction():
            self.connection.execute(f"set local session authorization {LOGINS.get(role, role)}")
            if role in LOGINS:
                self.connection.execute(f"set local role {role}")
            cursor = self.connection.execute(statement, params, prepare=False)
            rows = cursor.fetchall() if cursor.description else []
            self.connection.execute("set local session authorization default")
        return rows

    def audit(self, role: str = "monitor") -> list[Finding]:
        """What the audit says, as an ordinary monitor."""
        return [Finding(*map(str, row)) for row in self.rows(role, "select * from fence.audit()")]

    def armed(self) -> dict[str, bool]:
        """Whether each guard is armed, by the table's name in the registry."""
        found = self.rows("monitor", "select table_name, armed from fence.protected_tables")
        return {str(name): bool(yes) for name, yes in found}


@dataclass(frozen=True)
class Fault:
    """A fault: who makes it how, the findings, the registry names of the guards it disarms, who mends it."""

    statements: tuple[str, ...]
    findings: tuple[tuple[str, str, str], ...]
    disarmed: tuple[str, ...] = ()
    role: str = OWNER
    mender: str = "app_owner"


def mend(stage: Stage, fault: Fault, before: Sequence[Finding]) -> list[Finding]:
    """Make a fault, see exactly its findings, run their remedies as written; what the audit still says that is new."""
    stage.run(fault.role, *fault.statements)
    found = [finding for finding in stage.audit() if finding not in before]
    assert sorted(finding.short for finding in found) == sorted(fault.findings), found
    assert {table for table, yes in stage.armed().items() if not yes} == set(fault.disarmed)
    for remedy in dict.fromkeys(finding.remedy for finding in found):
        assert remedy.endswith(";"), remedy
        stage.run(fault.mender, remedy)
    return [finding for finding in stage.audit() if finding not in before]
