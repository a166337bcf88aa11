"""Connection strings: both forms are read, and no password is ever shown."""

import pytest

from compass_forged.errors import ConfigError
from compass_forged.observability import redact
from compass_forged.store.connect import ConnectParams, as_params


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://ada:s3cret-word@db.example:5433/forged", "ada@db.example:5433/forged"),
        ("postgres://db.example/forged", "db.example/forged"),
        ("postgresql://ada:s3cret-word@db.example", "ada@db.example/ada"),
        ("postgresql://ada@[::1]:5433/forged", "ada@[::1]:5433/forged"),
        ("postgresql://a%40b:s3cret%2Fword@one:1,two:2/forged", "a@b@one:1,two:2/forged"),
        ("postgresql://%2Frun%2Fpg/forged", "/run/pg/forged"),
        ("postgresql:///forged?host=/run/pg&user=ada&password=s3cret-word", "ada@/run/pg/forged"),
        ("postgresql:///?dbname=forged&user=ada", "ada@localhost/forged"),
        ("postgresql:///new%0Aline", "localhost/new?line"),
        ("  postgresql://db/forged\n", "db/forged"),
        ("host=db.example port=5433 dbname=forged user=ada password=s3cret-word", "ada@db.example:5433/forged"),
        ("host = '/run/my pg'  dbname='it\\'s' user=ada", "ada@/run/my pg/it's"),
        ("dbname=forged", "localhost/forged"),
        (r"dbname=a\ b", "localhost/a b"),
    ],
)
def test_a_place_is_shown_without_its_password(dsn: str, shown: str) -> None:
    params = as_params(dsn)
    assert params.shown == shown
    assert repr(params) == f"ConnectParams(shown={shown!r})"
    assert as_params(params) is params


@pytest.mark.parametrize(
    "dsn",
    [
        "",
        "forged",
        "mysql://ada:s3cret-word@db/forged",
        "postgresql://ada:s3cret/word@db/forged",
        "postgresql://ada:12/word@db/forged",
        "postgresql://ada:s3cret#word@db/forged",
        "postgresql://ada:12?word@db/forged",
        "postgresql://ada:s3cret-word@db:port/forged",
        "postgresql://ada:s3cret-word@d b/forged",
        "postgresql://ada:s3cret-word@[db/forged",
        "host=db password='s3cret-word",
        "host=db s3cret-word",
        "host=db pass word=s3cret",
    ],
)
def test_a_string_that_cannot_be_read_is_not_repeated(dsn: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ConnectParams.parse(dsn)
    assert "write postgresql://user@host:port/database" in str(raised.value)
    assert "word" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://ada:pass%2Dword-1@db/forged",
        "postgresql:///forged?password=pass-word-1",
        "host=db password='pass-word-1'",
    ],
)
def test_a_password_is_cut_out_of_the_log(dsn: str) -> None:
    ConnectParams.parse(dsn)
    assert redact("it said pass-word-1 aloud") == "it said [secret] aloud"


def test_the_keyword_form_reaches_the_driver_whole() -> None:
    params = ConnectParams.parse("host='/run/my pg' dbname=forged sslmode=require")
    assert params.uri == "postgresql:///?host=%2Frun%2Fmy%20pg&dbname=forged&sslmode=require"


def test_a_socket_is_a_place() -> None:
    params = ConnectParams.on_socket("/run/my, pg", user="ada", password="a&b=c/d#e", database="for ged")
    assert params.shown == "ada@/run/my, pg:5432/for ged"
    assert params.uri.startswith("postgresql:///for%20ged?host=%2Frun%2Fmy%2C%20pg&")
