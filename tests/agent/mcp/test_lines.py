"""Lines to messages: any cut gives the same, and what is no message is answered and passed over."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.agent.mcp.lines import PARTS_MAX, BadLine, LineBuffer, parsed, written

LIMIT = 20


def lines_of(parts: list[bytes], limit: int = LIMIT) -> list[bytes | str]:
    buffer = LineBuffer(limit)
    return [str(line) if isinstance(line, BadLine) else line for part in parts for line in buffer.feed(part)]


@given(st.binary(max_size=80).map(lambda data: data.replace(b"b", b"\n")), st.lists(st.integers(0, 80), max_size=6))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = [data[start:end] for start, end in pairwise(places)]
    assert lines_of(parts) == lines_of([data])


def test_blank_lines_are_passed_over_and_windows_line_ends_are_fine() -> None:
    assert lines_of([b"\n \r\n{}\r\n\n[]\n{"]) == [b"{}", b"[]"]


def test_a_line_at_the_limit_is_taken_and_one_more_byte_is_refused_once() -> None:
    refused = "a message is over the limit of 20 bytes; send a shorter one"
    assert lines_of([b"x" * 20 + b"\n"]) == [b"x" * 20]
    assert lines_of([b"x" * 21 + b"\nok\n"]) == [refused, b"ok"]
    assert lines_of([b"x" * 15, b"x" * 15, b"x" * 1000, b"x\nok\n"]) == [refused, b"ok"]


def test_a_buffer_holds_no_more_than_its_limit() -> None:
    buffer = LineBuffer(LIMIT)
    for _ in range(1000):
        list(buffer.feed(b"x" * 15))
        assert len(buffer._data) + len(buffer._head) <= LIMIT + 3 * 512


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff", -32700),
        (b"{}", -32600),
        (b"[]", -32600),
        (b'{"jsonrpc": "1.0", "method": "ping"}', -32600),
        (b"[" * 100_000, -32600),
        (json.dumps([0] * (PARTS_MAX + 1)).encode(), -32600),
    ],
)
def test_what_is_no_message_says_so_under_no_id(line: bytes, code: int) -> None:
    with pytest.raises(BadLine) as caught:
        parsed(line)
    answer = json.loads(written(caught.value.answer))
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] is None
    assert answer["error"]["code"] == code


def test_a_long_text_is_no_many_values() -> None:
    text = '{"a": [1, 2, "\\"]}' * 10_000
    message = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"text": text}}
    line = written(parsed(json.dumps(message).encode()))
    assert line.endswith(b"\n")
    assert json.loads(line) == message


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {"a": "\\ud83d"}}', 7),
        (b'{"method": "x", "params": {"a": "\\uD83D", "id": 8}, "jsonrpc": "2.0", "id": "seven"}', "seven"),
        (b'{"params": {"a": "\\ud83d"}, "id": -7, "jsonrpc": "2.0", "method": "x"}\r', -7),
        (b'{"jsonrpc": "1.0", "id": 7, "method": "x"}', 7),
        (b'{"method": "x", "params": {"a": "\\ud83d", "id": 8}}', None),
        (b'{"params": {"id": 8, "a": "\\ud83d"}, "method": "x"}', None),
        (b'{"jsonrpc": "2.0", "id": "\xff", "method": "x"}', None),
        (b'{"jsonrpc": "2.0", "id": 01, "method": "x"}', None),
    ],
)
def test_a_request_that_cannot_be_read_is_answered_under_its_own_id(line: bytes, found: object) -> None:
    with pytest.raises(BadLine) as caught:
        parsed(line)
    assert caught.value.answer.id == found


@pytest.mark.parametrize("step", [1, 7, 64, 100_000])
@pytest.mark.parametrize("line", [{"id": 7, "params": {"a": "x" * 3000}}, {"params": {"a": "x" * 3000}, "id": 7}])
def test_a_request_over_the_limit_is_answered_under_its_own_id(line: dict[str, object], step: int) -> None:
    data = json.dumps({"jsonrpc": "2.0", "method": "x", **line}).encode() + b"\nok\n"
    buffer = LineBuffer(1000)
    refused, following = [each for at in range(0, len(data), step) for each in buffer.feed(data[at : at + step])]
    assert isinstance(refused, BadLine)
    assert refused.answer.id == 7
    assert following == b"ok"


def test_an_id_is_not_put_together_from_two_places_of_a_line() -> None:
    first = b'{"jsonrpc": "2.0",' + b" " * 494  # as much as is kept of the head
    assert len(first) == 512
    buffer = LineBuffer(1000)
    assert not list(buffer.feed(first + b'"params": {"a": "' + b"x" * 400))
    (refused,) = buffer.feed(b'"id": 8, ' + b"x" * 600 + b"\n")
    assert isinstance(refused, BadLine)
    assert refused.answer.id is None
