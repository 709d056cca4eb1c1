"""What is wrong with pyfence's own objects and with rights is found, and mended by the remedy as it is written."""

from __future__ import annotations

import pytest
from audit.findings import Fault, Stage, mend
from harness import SUPERUSER

LEASE = "fence._lease"
KEY = "_lease_resource_token_key"
NO_KEY = f"alter table fence._lease drop constraint {KEY}"


def lease_key(*statements: str) -> Fault:
    """A fault that takes the key away: the name may be used by something that looks like it."""
    return of_schema(("error", "lease-key", LEASE), NO_KEY, *statements)


def of_schema(finding: tuple[str, str, str], *statements: str, mender: str = "fence_owner") -> Fault:
    return Fault(statements, (finding,), role="fence_owner", mender=mender)


def of_function(code: str, function: str, *statements: str) -> Fault:
    return of_schema(("error", code, function), *statements)


ACQUIRE = "fence.acquire(text,interval,text)"
RENEW = "fence.renew(text,bigint,text,interval)"
VOLATILE = {
    "acquire": ACQUIRE,
    "renew": RENEW,
    "renew_all": "fence.renew_all(text[],bigint[],text[],interval)",
    "release": "fence.release(text,bigint,text)",
    "revoke": "fence.revoke(text,text)",
    "present": "fence.present(text,bigint,text,bigint)",
    "present_all": "fence.present_all(text[],bigint[],text[],bigint[])",
    "_check_lease": "fence._check_lease(oid,text,text)",
    "_next_token": "fence._next_token(bigint)",
    "_record": "fence._record(text,text,bigint,text,jsonb)",
}

FAULTS = {
    "no key": lease_key(),
    "a partial key": lease_key(f"create unique index {KEY} on fence._lease (resource, token) where token > 0"),
    "a key over an expression": lease_key(f"create unique index {KEY} on fence._lease (resource, (token + 0))"),
    "a key that includes": lease_key(f"create unique index {KEY} on fence._lease (resource) include (token)"),
    "a deferrable key": lease_key(
        f"alter table fence._lease add constraint {KEY} unique (resource, token) deferrable initially immediate"
    ),
    "a wider key": lease_key(f"create unique index {KEY} on fence._lease (resource, token, lineage)"),
    "a key that is not unique": lease_key(f"create index {KEY} on fence._lease (resource, token)"),
    "an invalid key": Fault(
        (f"update pg_index set indisvalid = false where indexrelid = 'fence.{KEY}'::regclass",),
        (("error", "lease-key", LEASE),),
        role=SUPERUSER,
        mender="fence_owner",
    ),
    "no primary key": of_schema(("error", "lease-key", LEASE), "alter table fence._lease drop constraint _lease_pkey"),
    "own guard dropped": of_schema(
        ("error", "own-guard", "fence._history"), "drop trigger own_tables_guard on fence._history"
    ),
    "own guard disabled": of_schema(
        ("error", "own-guard", LEASE), "alter table fence._lease disable trigger own_tables_guard"
    ),
    "own guard not always": of_schema(
        ("error", "own-guard", "fence._guard"), "alter table fence._guard enable trigger own_tables_guard"
    ),
    "own guard for fewer events": of_schema(
        ("error", "own-guard", "fence._authority"),
        "create or replace trigger own_tables_guard before insert or update or delete on fence._authority"
        " for each statement execute function fence._own_tables_guard()",
        "alter table fence._authority enable always trigger own_tables_guard",
    ),
    "tokens may go down": of_schema(
        ("error", "own-guard", LEASE),
        "create or replace trigger token_only_grows after update on fence._lease"
        " for each row when (new.token < 0) execute function fence._own_tables_guard()",
        "alter table fence._lease enable always trigger token_only_grows",
    ),
    "own table unlogged": of_schema(("error", "own-table-unlogged", LEASE), "alter table fence._lease set unlogged"),
    "own table granted": of_schema(("warning", "own-table-granted", LEASE), "grant select on fence._lease to app"),
    "schema open": of_schema(("error", "schema-create-granted", "schema fence"), "grant create on schema fence to app"),
    "an unknown function": of_schema(
        ("warning", "function-unknown", "fence.mine()"),
        "create function fence.mine() returns int language sql as 'select 1'",
        "revoke all on function fence.mine() from public",
    ),
    "search_path open": of_function("function-search-path", ACQUIRE, f"alter function {ACQUIRE} reset search_path"),
    "search_path other": of_function(
        "function-search-path", ACQUIRE, f"alter function {ACQUIRE} set search_path = public"
    ),
    "everybody's": of_function("function-public", RENEW, f"grant execute on function {RENEW} to public"),
    "another owner": Fault(
        (f"alter function {ACQUIRE} owner to app_owner",),
        (("error", "function-owner", ACQUIRE),),
        role=SUPERUSER,
        mender=SUPERUSER,
    ),
    "a writer of everything": Fault(
        ("grant pg_write_all_data to outsider",),
        (("info", "write-all-data", "outsider"),),
        role=SUPERUSER,
        mender=SUPERUSER,
    ),
} | {
    f"{name} stable": of_function("function-not-volatile", signature, f"alter function {signature} stable")
    for name, signature in VOLATILE.items()
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_remedy_mends_it(stage: Stage, name: str) -> None:
    assert mend(stage, FAULTS[name], stage.audit()) == []


def new(stage: Stage, role: str, *statements: str) -> list[tuple[str, str, str]]:
    """What the audit finds after statements and did not before."""
    before = stage.audit()
    stage.run(role, *statements)
    return [finding.short for finding in stage.audit() if finding not in before]


def test_a_changed_function_is_found(stage: Stage) -> None:
    raises = "fence._raise(text,text,text,text,oid)"
    definition = str(stage.rows("fence_owner", f"select pg_get_functiondef('{raises}'::regprocedure)")[0][0])
    weaker = definition.replace("raise exception using", "raise warning using")
    assert weaker != definition
    assert new(stage, "fence_owner", weaker) == [("error", "function-changed", raises)]
    stage.run("fence_owner", definition)
    assert ("error", "function-changed", raises) not in [finding.short for finding in stage.audit()]


def test_a_function_with_its_callers_rights_is_found(stage: Stage) -> None:
    assert new(stage, "fence_owner", f"alter function {ACQUIRE} security invoker") == [
        ("error", "function-changed", ACQUIRE)
    ]


def test_a_missing_function_is_found(stage: Stage) -> None:
    assert new(stage, "fence_owner", "drop function fence.renew(text, bigint, text, interval)") == [
        ("error", "function-missing", "fence.renew")
    ]


def test_an_overload_is_found(stage: Stage) -> None:
    found = new(
        stage,
        "fence_owner",
        "create function fence.present(text) returns void language sql as 'select'",
        "revoke all on function fence.present(text) from public",
    )
    assert found == [("error", "function-changed", "fence.present(text)")]


def test_a_guard_that_the_registry_does_not_know_is_found(stage: Stage) -> None:
    found = new(stage, "fence_owner", "delete from fence._guard where table_name = 'plain'")
    assert found == [("error", "guard-unregistered", "public.plain")]


@pytest.mark.parametrize(
    "change",
    [
        "alter table public.report rename column id to number",
        "alter table public.report drop column id cascade",
        "alter table public.report drop column token cascade",
    ],
)
def test_a_key_or_token_column_that_is_gone_is_found_and_the_rest_is_said(stage: Stage, change: str) -> None:
    stage.run("table_owner", "alter table public.report set unlogged")
    before = stage.audit()
    stage.run("table_owner", change)
    (found,) = [finding for finding in stage.audit() if finding not in before]
    assert found.short == ("error", "template-broken", "public.report")
    assert "LF013" in found.detail
    assert "fence.protect('public.report'" in found.remedy
    assert ("warning", "table-unlogged", "public.report") in [finding.short for finding in stage.audit()]
    assert stage.armed()["report"] is ("token" in change)
    stage.run("app_owner", "select fence.protect('public.report', 'report:{tenant}', p_token_column => '')")
    assert "template-broken" not in [finding.code for finding in stage.audit()]


def test_owners_that_could_take_the_guard_off_are_found(stage: Stage) -> None:
    def rights(owner: str) -> set[tuple[str, str, str]]:
        stage.run(SUPERUSER, f"alter table public.plain owner to {owner}")
        found = {finding.short for finding in stage.audit()}
        return {(severity, code, table) for severity, code, table in found if code.startswith("owner-")}

    assert rights("table_owner") == set()
    assert rights(SUPERUSER) == {("info", "owner-superuser", "public.plain")}
    assert rights("app_owner") == {
        ("warning", "owner-can-login", "public.plain"),
        ("warning", "owner-is-client", "public.plain"),
    }
    assert rights("outsider") == {("warning", "owner-can-login", "public.plain")}


def test_the_schemas_owner_is_looked_at(stage: Stage) -> None:
    def owners() -> list[str]:
        return [finding.code for finding in stage.audit() if finding.code.startswith("schema-owner")]

    assert owners() == ["schema-owner-can-login"]
    stage.run(SUPERUSER, "alter role fence_owner superuser")
    assert owners() == ["schema-owner-superuser"]
    stage.run(SUPERUSER, "alter role fence_owner nosuperuser nologin")
    assert owners() == []


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, []),
        ({"log_statement": "all", "log_parameter_max_length": "0"}, []),
        ({"log_statement": "all"}, ["log_parameter_max_length"]),
        ({"log_min_duration_statement": "1000"}, ["log_parameter_max_length"]),
        ({"log_parameter_max_length_on_error": "-1"}, ["log_parameter_max_length_on_error"]),
    ],
)
def test_settings_that_log_secrets_are_found(stage: Stage, settings: dict[str, str], found: list[str]) -> None:
    for name, value in settings.items():
        stage.connection.execute(f"set local {name} = '{value}'")
    assert [finding.object for finding in stage.audit() if finding.code == "secrets-logged"] == found
