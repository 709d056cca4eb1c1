"""Running `pyfence`: in this process, which is quick, or as the installed program, which is the real thing."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from pyfence.cli import main

PROGRAM = Path(sys.executable).with_name("pyfence")


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as the one JSON document that it must be."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """What a failed command says with --json."""
        assert set(self.json) == {"error"}
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"code", "message", "detail", "hint"}
        return error


class CommandLine:
    """`pyfence` with PYFENCE_DATABASE_URL set to one database."""

    def __init__(self, url: str | None) -> None:
        self.url = url

    def _environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        url = {} if self.url is None else {"PYFENCE_DATABASE_URL": self.url}
        return {**os.environ, **url, **(env or {})}

    def __call__(self, *arguments: str, code: int | None = 0, env: Mapping[str, str] | None = None) -> Done:
        """Run it in this process; it must end with `code` (None: with any)."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self._environment(env), clear=True),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            result = main(list(arguments))
        return checked(Done(int(result), out.getvalue(), err.getvalue()), code)

    def program(
        self, *arguments: str | bytes, code: int | None = 0, env: Mapping[str, str] | None = None, **options: Any
    ) -> Done:
        """Run the installed program; stdin is empty and no stream is a terminal."""
        done = subprocess.run(
            [PROGRAM, *arguments],
            env=self._environment(env),
            stdin=subprocess.DEVNULL,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60, **options},
        )
        out, err = ((text or b"").decode() for text in (done.stdout, done.stderr))
        return checked(Done(done.returncode, out, err), code)


def checked(done: Done, code: int | None) -> Done:
    """`done`, if it ended as expected. Whatever happened: no traceback, no secret and no escape sequence."""
    assert code is None or done.code == code, done
    assert "Traceback" not in done.err
    assert "\x1b" not in done.out + done.err
    return done
