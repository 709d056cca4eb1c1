"""Rules of the source that a reader relies on: where SQL is, and what a file of it holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pyfence"
SQL = ROOT / "sql"
ONE_OBJECT = ("20_functions", "21_internal", "35_internal_views", "40_views")
PUBLIC = ("20_functions", "40_views")
KINDS = ("function", "table", "view")

#: The modules that may hold SQL text against the schema fence: the client's, the integrations', and one of each command
#: that reads the views or plays somebody else's part.
SQL_MODULES = {
    "_statements.py",
    "sqlalchemy",
    "alembic",
    "testing",
    "_migration_branch.py",
    "_migration_guards.py",
    "_migration_ops.py",
    "_migration_roles.py",
    "_migration_target.py",
    "_queries.py",
    "_sql.py",
}
VERBS = (
    r"select|insert\s+into|update|delete\s+from|with|call|do|create|alter|drop|grant|revoke|truncate|merge|copy|lock"
)
STATEMENT = re.compile(rf"^\s*(?:{VERBS})\b.*\bfence\.", re.IGNORECASE | re.DOTALL)

#: Enough words for a file in capitals to be noticed.
KEYWORDS = re.compile(
    r"\b(?:SELECT|INSERT|UPDATE|DELETE|MERGE|FROM|WHERE|JOIN|ORDER|LIMIT|RETURNING|CREATE|ALTER|DROP|TABLE|VIEW|FUNCTION"
    r"|TRIGGER|CONSTRAINT|NOT|AND|OR|IS|IN|AS|BEGIN|END|IF|THEN|ELSE|LOOP|RETURNS?|LANGUAGE|SET|DECLARE|RAISE|PERFORM"
    r"|EXECUTE|FOR|GRANT|REVOKE|COMMENT|WITH|CASE|WHEN|EXISTS|DISTINCT|VALUES|INTO|NULL|TRUE|FALSE)\b"
)
CREATES = re.compile(r"^create\s+(?:or\s+replace\s+)?(\w+)\s+(?:fence\.)?(\w+)", re.MULTILINE)
COMMENT, DOLLAR, STRING, IDENTIFIER = r"--[^\n]*", r"\$\w*\$", r"'(?:[^']|'')*'", r'"[^"]*"'


def literals(tree: ast.AST) -> list[tuple[int, str]]:
    """Every string of a module but its docstrings, with its line; the constant parts of an f-string are one."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
            found.append((node.lineno, text))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            found.append((node.lineno, node.value))
    return found


def test_sql_against_the_schema_is_in_one_module_and_the_integrations() -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{line}: {text.split(chr(10))[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not SQL_MODULES & set(path.relative_to(PACKAGE).parts)
        for line, text in literals(ast.parse(path.read_text()))
        if STATEMENT.match(text)
    ]
    assert offenders == []


def test_the_rule_sees_what_it_forbids() -> None:
    source = 'a = f"""\n  Select * from fence.acquire({x})"""\ndef f():\n    "select of fence. is documentation"\n'
    assert [line for line, text in literals(ast.parse(source)) if STATEMENT.match(text)] == [1]


def sql_files(*folders: str) -> list[Path]:
    """The files of the product's SQL, all or those of some folders."""
    found = [path for path in sorted(SQL.rglob("*.sql")) if not folders or path.parent.name in folders]
    assert found
    return found


def code(path: Path) -> str:
    """A file's SQL without comments, strings and quoted names; the bodies of functions stay."""
    return re.sub("|".join((COMMENT, STRING, IDENTIFIER)), " ", path.read_text())


def created(path: Path) -> list[tuple[str, str]]:
    """The kind and name of every object that a file creates outside a function's body."""
    return CREATES.findall(re.sub(rf"({DOLLAR}).*?\1", " ", code(path), flags=re.DOTALL))


def test_sql_keywords_are_in_lower_case() -> None:
    found = {path.name: KEYWORDS.findall(code(path)) for path in sql_files()}
    assert {name: words for name, words in found.items() if words} == {}


def test_a_file_holds_the_one_object_it_is_named_after() -> None:
    named = {path.name: [name for _, name in created(path)] for path in sql_files(*ONE_OBJECT)}
    assert {file: names for file, names in named.items() if [f"{name}.sql" for name in names] != [file]} == {}


def test_private_names_start_with_an_underscore_and_public_ones_do_not() -> None:
    for path in sql_files():
        public = path.parent.name in PUBLIC
        wrong = [name for kind, name in created(path) if kind in KINDS and name.startswith("_") == public]
        assert wrong == [], path.relative_to(SQL)
