"""The SQL files: found, named, described, and used."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from compass_forged.errors import StartError
from compass_forged.ports import PROVIDER_NUMBERS
from compass_forged.store import rules
from compass_forged.store import statements as module
from compass_forged.store.statements import migrations, parse_migration, parse_statements, sql_folder, statements

STORE = Path(module.__file__).parent


def test_each_statement_has_a_name_and_a_sentence() -> None:
    text = (sql_folder() / "queries.sql").read_text(encoding="utf-8")
    assert len(statements()) == text.count("-- name:")
    for statement in statements().values():
        assert statement.sentence[0].isupper()
        assert statement.sentence.endswith(".")
        assert statement.sql
        assert ";" not in statement.sql


def test_each_statement_is_used() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in STORE.glob("*.py"))
    assert [name for name in statements() if f'["{name}"]' not in code] == []


def test_no_module_holds_sql_of_its_own() -> None:
    words = re.compile(r'"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|WITH)\s')
    assert [path.name for path in STORE.glob("*.py") if words.search(path.read_text(encoding="utf-8"))] == []


def test_a_name_may_stand_once() -> None:
    twice = "-- name: one\n-- First.\nSELECT 1;\n\n-- name: one\n-- Second.\nSELECT 2;\n"
    with pytest.raises(ValueError, match="one stands twice"):
        parse_statements(twice)


def test_a_statement_shows_itself_without_its_text() -> None:
    (statement,) = parse_statements("-- name: one\n-- Gives one.\nSELECT 1;\n").values()
    assert statement.sql == "SELECT 1"
    assert repr(statement) == "Statement(name='one', sentence='Gives one.')"


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [migration.version for migration in migrations()] == list(range(1, len(migrations()) + 1))
    assert [migration.name for migration in migrations()][:2] == ["init", "forge_authored_artifacts"]
    assert all(len(migration.checksum) == 32 for migration in migrations())


@pytest.mark.parametrize("name", ["1_init.sql", "0001-init.sql", "0001_init.sql.orig", "0001_Init.sql"])
def test_a_migrations_file_is_named_by_the_rule(name: str) -> None:
    with pytest.raises(ValueError, match=r"must be like 0001_init\.sql"):
        parse_migration(name, b"")


def test_the_files_inside_the_package_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "queries.sql").write_text("")
    monkeypatch.setattr(module, "files", lambda _package: tmp_path)
    assert sql_folder() == tmp_path / "sql"


def test_a_broken_installation_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "files", lambda _package: tmp_path)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    with pytest.raises(StartError, match="SQL files are missing"):
        sql_folder()


def test_the_schema_and_the_rules_say_the_same() -> None:
    schema = (sql_folder() / "schema.sql").read_text(encoding="utf-8")
    numbers = ", ".join(map(str, sorted(PROVIDER_NUMBERS.values())))
    assert set(re.findall(r"forge_provider IN \((.*?)\)", schema)) == {numbers}
    assert schema.count(f"~ '^{rules.HANDLE.pattern}$'") == 5
    assert f"name ~ '^{rules.CONTAINER_NAME.pattern}$'" in schema
    assert f"host_id ~ '^{rules.HOST_ID.pattern}$'" in schema
    assert "'^[ -~]+$' AND octet_length(client_request_id) <= 256" in schema
    assert rules.REQUEST_ID.pattern == "[ -~]{1,256}"
    assert f"octet_length(request_fingerprint) = {rules.FINGERPRINT_BYTES}" in schema


def test_the_package_is_where_resources_look() -> None:
    assert (files("compass_forged") / "store").is_dir()
