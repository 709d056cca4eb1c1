"""Spans and counters through OpenTelemetry's API; a schema that is too old for the client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from harness import Database, sqlstate

import pyfence

PROGRAM = """
import asyncio, json, sys
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
metrics.set_meter_provider(MeterProvider([reader]))

import pyfence

with pyfence.Fence(sys.argv[1]) as fence:
    lease = fence.acquire("report:1")
    lease.renew()
    with lease.transaction() as conn:
        conn.execute("update public.report set body = 'new' where id = 1")
    try:
        with lease.transaction() as conn:
            conn.execute("update public.report set body = 'new' where id = 2")
    except pyfence.WrongResource:
        pass
    secrets = [lease.claim.secret, str(lease.token)]
    lease.release()

    async def main():
        async with pyfence.AsyncFence(sys.argv[1]) as fence:
            lease = await fence.acquire("report:2")
            async with lease.transaction():
                pass
    asyncio.run(main())

data = reader.get_metrics_data().to_json()
out = {"spans": [[s.name, dict(s.attributes), s.status.status_code.name] for s in spans.get_finished_spans()]}
out["counts"] = [
    [metric["name"], point["attributes"], point["value"]]
    for resource in json.loads(data)["resource_metrics"]
    for scope in resource["scope_metrics"] for metric in scope["metrics"] for point in metric["data"]["data_points"]
]
text = json.dumps(out, default=list) + data
assert not any(secret in text for secret in secrets)
print(json.dumps(out, default=list))
"""


def test_spans_and_counters_without_tokens_and_secrets(db: Database, report: str) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="no OpenTelemetry: spans were not looked at; python3 dev.py setup")
    done = subprocess.run([sys.executable, "-c", PROGRAM, db.url("app")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert [(name, status) for name, _, status in seen["spans"]] == [
        ("pyfence.acquire", "UNSET"),
        ("pyfence.transaction", "UNSET"),
        ("pyfence.transaction", "ERROR"),
        ("pyfence.acquire", "UNSET"),
        ("pyfence.transaction", "UNSET"),
    ]
    assert seen["spans"][0][1] == {"pyfence.resources": ["report:1"]}
    assert seen["spans"][2][1] == {"pyfence.resources": ["report:1"], "error.type": "WrongResource"}
    assert sorted(seen["counts"]) == [
        ["pyfence.leases.granted", {}, 2],
        ["pyfence.leases.renewed", {}, 1],
        ["pyfence.refused", {"code": "LF005"}, 1],
    ]


def test_without_the_api_everything_works(db: Database) -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\nimport pyfence\n"
        "with pyfence.Fence(sys.argv[1]) as f, f.lease('a') as lease, lease.transaction(): pass"
    )
    subprocess.run([sys.executable, "-c", code, db.url("app")], check=True, timeout=60)


@pytest.mark.parametrize("found", ["0000", "0001", "9999"])
def test_no_lease_is_granted_by_a_schema_that_is_too_old(db: Database, report: str, found: str) -> None:
    create = "create or replace function fence.schema_version() returns text language sql immutable"
    db.execute(f"{create} as $$ select '{found}' $$", user="fence_owner")

    async def asynchronous() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence:
            await fence.acquire("report:2")

    with pyfence.Fence(db.url("app")) as fence:
        if found == "0000":
            with pytest.raises(pyfence.SchemaMismatch, match=r"schema version 0000, .* needs 0001") as refused:
                fence.acquire("report:1")
            assert refused.value.sqlstate == "LF011"
            assert "migrate up" in refused.value.hint
            with pytest.raises(pyfence.SchemaMismatch):
                asyncio.run(asynchronous())
            assert db.execute("select from fence.leases") == []
        else:
            assert fence.acquire("report:1").token
            asyncio.run(asynchronous())
    with sqlstate("LF004"):  # guards do not ask for the client's version
        db.execute("update public.report set body = 'x' where id = 3", user="outsider")
