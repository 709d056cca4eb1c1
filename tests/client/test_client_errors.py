"""Every refusal of the database is its own exception, read from the diagnostics alone."""

from __future__ import annotations

import pickle

import psycopg
import pytest
from harness import Database

import pyfence
from pyfence.errors import from_driver, translated

CODES = {
    "LF001": pyfence.StaleToken,
    "LF002": pyfence.LeaseExpired,
    "LF004": pyfence.ClaimMissing,
    "LF005": pyfence.WrongResource,
    "LF006": pyfence.UnknownLease,
    "LF007": pyfence.DuplicateWrite,
    "LF008": pyfence.SequenceError,
    "LF009": pyfence.AuthorityQuarantined,
    "LF010": pyfence.BadArgument,
    "LF011": pyfence.SchemaMismatch,
    "LF012": pyfence.LeaseHeld,
    "LF013": pyfence.GuardBroken,
}


def raised(db: Database, errcode: str, constraint: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        db.execute(
            f"""do $$ begin
              raise exception using errcode = '{errcode}', message = 'no LF002 here', detail = 'the detail',
                hint = 'the hint', schema = 'app', table = 'report', constraint = '{constraint}';
            end $$"""
        )
    return caught.value


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("uncatchable", [False, True])
def test_each_code_is_its_own_class(db: Database, code: str, uncatchable: bool) -> None:
    driver = raised(db, "P0004" if uncatchable else code, code)
    with pytest.raises(pyfence.FenceError) as caught, translated(resource="report:1"):
        raise driver
    error = caught.value
    assert type(error) is CODES[code]
    assert type(error).sqlstate == code
    assert error.__cause__ is driver
    assert (error.message, error.detail, error.hint) == ("no LF002 here", "the detail", "the hint")
    assert (error.schema, error.table, error.resource) == ("app", "report", "report:1")
    assert all(part in str(error) for part in (code, "the detail", "the hint"))


@pytest.mark.parametrize("errcode", ["40001", "23505", "P0004", "P0001", "25006"])
def test_what_is_not_ours_passes_untouched(db: Database, errcode: str) -> None:
    driver = raised(db, errcode, "some_constraint")
    assert from_driver(driver) is None
    with pytest.raises(type(driver)) as caught, translated():
        raise driver
    assert caught.value is driver


def test_an_unknown_code_is_still_a_fence_error(db: Database) -> None:
    error = from_driver(raised(db, "LF099", ""))
    assert type(error) is pyfence.FenceError
    assert "LF099" in str(error.__cause__.diag.sqlstate)  # type: ignore[union-attr]


def test_every_code_has_a_class_and_every_class_a_code() -> None:
    classes = {value for name in pyfence.__all__ if isinstance(value := getattr(pyfence, name), type)}
    coded = {c for c in classes if issubclass(c, pyfence.FenceError) and c.sqlstate is not None}
    assert coded == set(CODES.values())
    assert issubclass(pyfence.BadArgument, ValueError)
    assert pyfence.LeaseLost.sqlstate is None


def test_the_database_raises_them(db: Database, report: str, fence: pyfence.Fence) -> None:
    lease = fence.acquire("report:1")
    with pytest.raises(pyfence.ClaimMissing) as missing, translated():
        db.execute("update public.report set body = 'x'", user="outsider")
    assert (missing.value.schema, missing.value.table) == ("public", "report")
    assert missing.value.hint

    with pytest.raises(pyfence.WrongResource), lease.transaction() as conn:
        conn.execute("update public.report set body = 'x' where id = 2")

    forged = pyfence.Claim("report:1", 2**62, "made up")
    with pytest.raises(pyfence.UnknownLease), fence.transaction(forged):
        pass

    with pytest.raises(pyfence.BadArgument) as bad:
        lease.fenced_update("public.report", {"body": "old"}, {"body": "x"})
    assert bad.value.hint
    with pytest.raises(pyfence.BadArgument):
        fence.acquire("report:{id}")

    assert lease.release()
    newer = fence.acquire("report:1")
    stale = pyfence.Claim("report:1", lease.token, lease.claim.secret)
    with pytest.raises(pyfence.StaleToken) as refused, fence.transaction(stale):
        pass
    assert str(newer.token) in str(refused.value)


def test_no_schema_is_said_so(empty_db: Database) -> None:
    with pyfence.Fence(empty_db.url("app")) as fence, pytest.raises(pyfence.SchemaMismatch) as caught:
        fence.acquire("report:1")
    assert "migrate up" in str(caught.value)
    assert isinstance(caught.value.__cause__, psycopg.Error)


def test_a_secret_is_in_no_text(
    db: Database, report: str, fence: pyfence.Fence, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with fence.lease("report:1", ttl=1) as lease:
        secret = lease.claim.secret
        assert len(secret) >= 32
        texts = [repr(lease), str(lease), repr(lease.claim), str(lease.claim), repr(lease.claim.with_sequence(1))]
        forged = pyfence.Claim("report:1", lease.token + 1, secret)
        with pytest.raises(pyfence.FenceError) as caught:
            fence.transaction(forged).__enter__()
        texts += [str(caught.value), repr(caught.value), str(caught.value.__cause__)]
        with pytest.raises(pyfence.WrongResource) as caught:
            lease.fenced_update("public.report", {"id": 2}, {"body": "x"})
        texts += [str(caught.value), str(caught.value.__cause__)]
        with pytest.raises(pyfence.LeaseHeld) as held:
            fence.acquire("report:1")
        texts += [str(held.value), repr(vars(held.value))]
        for thing in (lease, lease.claim):
            with pytest.raises(TypeError):
                pickle.dumps(thing)
    assert not [text for text in [*texts, caplog.text] if secret in text]
