"""The command line `pyfence`: thin commands over the migrations and the SQL functions.

Data goes to stdout, talk to stderr; with ``--json`` stdout is one JSON document, also where the command failed.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code; see `pyfence.cli._exit_codes`."""
    from pyfence.cli._main import run

    return run(arguments)
