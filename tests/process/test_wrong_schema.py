"""A daemon over a database that is not this version's does not start, and says why."""

import pytest

from tests.support.postgres import fresh_database, psql
from tests.support.world import DaemonProcess, Place, place

pytestmark = [pytest.mark.process, pytest.mark.postgres]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("INSERT INTO forged_migrations (version, name, checksum) VALUES (9999, 'future', '')", "9999_future"),
        ("UPDATE forged_migrations SET checksum = '' WHERE version = 1", "0001_init was applied"),
        ("DELETE FROM forged_migrations WHERE version = 1", "lacks migration 0001_init"),
    ],
    ids=["newer", "changed", "gap"],
)
def test_a_daemon_does_not_start_over_another_schema(sql: str, said: str) -> None:
    dsn = fresh_database()
    psql(dsn, sql)
    with place() as where:
        assert _refused(where, dsn) != 0
        last = where.log.read_text().splitlines()[-1]
    assert said in last
    assert "Traceback" not in last


def test_a_daemon_whose_role_may_not_migrate_does_not_start_and_says_who_can() -> None:
    dsn = fresh_database()
    role = "compass_forged_stranger"
    psql(dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'of-the-test'")
    limited = "&".join(
        f"user={role}" if part.startswith("user=") else "password=of-the-test" if part.startswith("password=") else part
        for part in dsn.split("&")
    )
    try:
        with place() as where:
            assert _refused(where, limited) != 0
            assert "sql/grants.sql" in where.log.read_text().splitlines()[-1]
    finally:
        psql(dsn, f"DROP ROLE {role}")


def _refused(where: Place, dsn: str) -> int:
    """The exit status of a daemon that ends by itself."""
    where.configure("http://127.0.0.1:9", store='{ env = "TEST_DSN" }', environ={"TEST_DSN": dsn})
    process = DaemonProcess(where)
    try:
        return process.process.wait(30)
    finally:
        process.close()
