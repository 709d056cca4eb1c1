"""The page in a real browser: it draws, zooms, and runs nothing but its own script."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from cli.command import CommandLine
from guards.scene import acquire
from harness import Database

pytestmark = pytest.mark.browser
EVIL = "report </script><script>document.documentElement.dataset.evil = 1</script>"
WIDTH, HEIGHT = 800, 600


def browser(*arguments: str) -> str:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium here (Debian: apt install chromium): that the page draws and zooms was not looked at")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"]
    done = subprocess.run([program, *options, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pixels(png: Path) -> list[bytes]:
    """The rows of a PNG with 8 bits a channel, unfiltered."""
    data = png.read_bytes()
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert (width, height, depth) == (WIDTH, HEIGHT, 8)
    size = {2: 3, 6: 4}[colour]
    packed, at = b"", 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    raw = zlib.decompress(packed)
    rows, before = [], bytes(width * size)
    for start in range(0, len(raw), width * size + 1):
        kind, row = raw[start], bytearray(raw[start + 1 : start + 1 + width * size])
        for i in range(len(row)):
            left, up = row[i - size] if i >= size else 0, before[i]
            corner = before[i - size] if i >= size else 0
            if kind == 4:
                guess = left + up - corner
                near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
            row[i] = (row[i] + (0, left, up, (left + up) // 2, near if kind == 4 else 0)[kind]) % 256
        before = bytes(row)
        rows.append(b"".join(before[i : i + 3] for i in range(0, len(before), size)))
    return rows


@pytest.fixture
def page(db: Database, tmp_path: Path) -> Path:
    db.execute("create table public.report (id int primary key)")
    db.execute("select fence.protect('public.report', %s)", (EVIL,))
    for _ in range(3):
        lease = acquire(db, EVIL)
        db.execute("select fence.release(%s, %s, %s)", lease.parameters, user="app")
    acquire(db, EVIL)
    file = tmp_path / "page.html"
    CommandLine(db.url("monitor"))("timeline", EVIL, "--html", str(file))
    return file


def test_it_draws_in_its_colours(page: Path, tmp_path: Path) -> None:
    shot = tmp_path / "page.png"
    browser(f"--screenshot={shot}", page.as_uri())
    found = b"".join(pixels(shot))
    colours = {found[i : i + 3].hex() for i in range(0, len(found), 3)}
    assert {"fbfaf7", "4f7cac"} <= colours or {"15181c", "4f7cac"} <= colours  # the paper, and a lease
    assert len(colours) > 50


def test_it_zooms_to_what_its_address_says(page: Path) -> None:
    whole = browser("--dump-dom", page.as_uri())
    assert 'data-ready="yes"' in whole
    assert "data-evil" not in whole.split("<body>")[0]
    a, b = (float(value) for value in re.findall(r'id="chart".*?data-a="([\d.]+)" data-b="([\d.]+)"', whole)[0])
    middle = browser("--dump-dom", f"{page.as_uri()}#from={stamp(a + (b - a) / 4)}&to={stamp(b - (b - a) / 4)}")
    width = r'<rect class="s open[^>]* width="([\d.]+)%"'
    places = [float(re.findall(r'<rect class="s o\d"[^>]* x="([-\d.]+)%"', text)[1]) for text in (whole, middle)]
    assert re.search(width, whole)
    assert abs((places[1] - 50) - 2 * (places[0] - 50)) < 1.5 or places[1] == -1
    assert re.findall(r'id="shown">([^<]+)<', whole) != re.findall(r'id="shown">([^<]+)<', middle)


def test_without_javascript_there_is_the_same_chart_and_a_table(page: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub(r"(?s)<script>.*</script>", "", page.read_text("utf-8")), "utf-8")
    shot = tmp_path / "bare.png"
    browser(f"--screenshot={shot}", bare.as_uri())
    found = b"".join(pixels(shot))
    assert bytes.fromhex("4f7cac") in found


def stamp(ms: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
