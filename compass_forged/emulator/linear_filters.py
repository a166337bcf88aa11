"""Linear's filters over plain views of what the forge holds. Pure.

A filter is an object: of comparators for values, of filters for objects, of ``some`` and ``every`` for lists, and of
``and`` and ``or``. All of what it holds must match.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

View = Mapping[str, Any]

_COMPARATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": lambda value, given: bool(value == given),
    "neq": lambda value, given: bool(value != given),
    "in": lambda value, given: value in given,
    "nin": lambda value, given: value not in given,
    "eqIgnoreCase": lambda value, given: str(value).casefold() == str(given).casefold(),
}


def matches(value: Any, wanted: Mapping[str, Any] | None) -> bool:
    """Whether a value, a view or a list of views fits a filter; None fits everything."""
    return wanted is None or all(_fits(value, name, given) for name, given in wanted.items())


def _fits(value: Any, name: str, given: Any) -> bool:  # noqa: PLR0911 -- a table: one return for each word
    if given is None:
        return True
    match name:
        case "and":
            return all(matches(value, one) for one in given)
        case "or":
            return any(matches(value, one) for one in given)
        case "null":
            return (value is None) is bool(given)
        case "some":
            return any(matches(one, given) for one in value)
        case "every":
            return all(matches(one, given) for one in value)
        case _ if name in _COMPARATORS:
            return _COMPARATORS[name](value, given)
        case _:
            return value is not None and matches(value.get(name), given)
