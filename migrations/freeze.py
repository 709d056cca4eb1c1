"""Copy `sql/` into `migrations/frozen/NNNN/up` for a revision that is not released yet.

    python migrations/freeze.py 0001              copy sql/ as it stands
    python migrations/freeze.py --release 0001    write the revision's checksums: from then on it never changes
    python migrations/freeze.py --check           verify the released revisions

`frozen/CHECKSUMS` lists every file of every released revision. Copying is for a revision that holds the whole of
`sql/`, and writes `down/30_objects.sql` along with it; a later one holds only what it changes, written by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from pathlib import Path

from pyfence import _migration_ops as ops
from pyfence import _resources


def checksums_file(frozen: Path) -> Path:
    """Where the checksums of the released revisions are."""
    return frozen / "CHECKSUMS"


def released(frozen: Path) -> dict[str, str]:
    """Map the path of every released file, relative to `frozen`, to its SHA-256."""
    path = checksums_file(frozen)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    entries = [line.split("  ", 1) for line in lines if line and not line.startswith("#")]
    return {name: digest for digest, name in entries}


def digests(frozen: Path, revision: str) -> dict[str, str]:
    """Compute what `released` holds for one revision, from the files themselves."""
    return {
        path.relative_to(frozen).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in _resources.sql_files(frozen / revision)
    }


def check(frozen: Path) -> list[str]:
    """List the files of released revisions that were changed, removed or added."""
    recorded = released(frozen)
    actual: dict[str, str] = {}
    for revision in {name.split("/", 1)[0] for name in recorded}:
        actual |= digests(frozen, revision)
    return sorted(name for name in recorded.keys() | actual.keys() if recorded.get(name) != actual.get(name))


def unfit(directory: Path) -> list[str]:
    """List the files that would not mean the same online and in a script: not ASCII, or no semicolon at the end."""
    found = []
    for path in _resources.sql_files(directory):
        data = path.read_bytes()
        if not data.isascii() or not data.rstrip().endswith(b";"):
            found.append(path.relative_to(directory).as_posix())
    return found


def refuse_released(frozen: Path, revision: str) -> None:
    """Stop if `revision` is released."""
    if any(name.startswith(f"{revision}/") for name in released(frozen)):
        sys.exit(f"revision {revision} is released: its files never change; make a new revision")


def freeze(frozen: Path, revision: str, source: Path) -> None:
    """Replace `revision`'s `up` directory by a verbatim copy of `source`."""
    refuse_released(frozen, revision)
    if bad := unfit(source):
        sys.exit(f"not ASCII, or not ended by a semicolon: {', '.join(bad)}")
    target = frozen / revision / "up"
    shutil.rmtree(target, ignore_errors=True)
    for path in _resources.sql_files(source):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    (frozen / revision / "down" / "30_objects.sql").write_text(drops(source), encoding="utf-8")


def drops(source: Path) -> str:
    """Write the statements that take back what the files below `source` create.

    Each kind in one statement, so that their order does not matter, and none with `cascade`: what a user built on one
    of these objects is not ours to drop.
    """
    created = ops.created(source)
    statements = ["-- What this revision created. Never cascade: what a user built on it stops the removal.\n"]
    for kind in ("view", "function", "table", "domain", "type"):
        if names := [name for found, name in created if found == kind]:
            statements.append(f"drop {kind}\n  " + ",\n  ".join(names) + ";\n")
    return "".join(statements)


def release(frozen: Path, revision: str) -> None:
    """Add `revision`'s checksums to the list."""
    refuse_released(frozen, revision)
    lines = [f"{digest}  {name}\n" for name, digest in digests(frozen, revision).items()]
    if not lines:
        sys.exit(f"revision {revision} has no files")
    with checksums_file(frozen).open("a", encoding="utf-8") as out:
        out.writelines(lines)


def main() -> None:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--release", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    frozen = _resources.frozen_dir()
    if options.check:
        if changed := check(frozen):
            sys.exit(f"released files differ from {checksums_file(frozen).name}: {', '.join(changed)}")
    elif options.revision is None:
        parser.error("which revision?")
    elif options.release:
        release(frozen, options.revision)
    else:
        freeze(frozen, options.revision, _resources.sql_dir())


if __name__ == "__main__":
    main()
