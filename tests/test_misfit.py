"""What is said of a value that does not fit: msgspec's text is read back, so its forms are held here."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from compass_forged.misfit import JSON_KINDS, TOML_KINDS, explain


class Inner(Struct):
    word: Literal["a", "b"] = "a"
    few: Annotated[list[int], Meta(max_length=1)] = []


class Outer(Struct):
    name: str
    size: Annotated[float, Meta(gt=0)] = 1.0
    either: str | Inner | None = None
    many: list[Inner] = []


@pytest.mark.parametrize(
    ("value", "place", "said"),
    [
        ([], "", "expected a table, got a list"),
        ({}, "name", "missing"),
        ({"name": None}, "name", "expected a text, got null"),
        ({"name": "x", "size": "y"}, "size", "expected a number, got a text"),
        ({"name": "x", "size": -1.0}, "size", "expected a number > 0.0"),
        ({"name": "x", "size": True}, "size", "expected a number, got true or false"),
        ({"name": "x", "either": 1}, "either", "expected a text or a table, got a whole number"),
        ({"name": "x", "many": {}}, "many", "expected a list, got a table"),
        ({"name": "x", "many": [{"word": "a"}, {"word": "it's `c`"}]}, "many[1].word", 'unknown value "it\'s `c`"'),
        ({"name": "x", "many": [{"few": [1, 2]}]}, "many[0].few", "expected a list of length <= 1"),
        ({"name": "x", "many": [{"few": [1.5]}]}, "many[0].few[0]", "expected a whole number, got a number"),
    ],
)
def test_the_place_and_the_kinds_are_told(value: Any, place: str, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(value, Outer)
    assert explain(raised.value, TOML_KINDS) == (place, said)


def test_kinds_are_called_as_where_the_value_was_written() -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert({"name": "x", "many": {}}, Outer)
    assert explain(raised.value, JSON_KINDS) == ("many", "expected a list, got an object")
