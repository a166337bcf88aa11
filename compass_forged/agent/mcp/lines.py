"""MCP's stdio framing: one JSON-RPC message a line, with a limit on the line and on what it may unfold to. Pure.

A line over the limit is answered with an error once, and skipped to its end; what follows it is read as ever.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
from mcp import types
from pydantic import ValidationError

LINE_MAX_BYTES: Final = 1 << 20
"""No longer than a frame to the daemon, into which a call has to fit."""
PARTS_MAX: Final = 20_000
"""How many values a message may hold: each costs far more memory than it takes bytes. A tool's call has hundreds."""
_SMALL_BYTES: Final = 16 << 10
_STRINGS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class _Request(msgspec.Struct):
    """A request as nearly all are: checked in a tenth of the time that the SDK's reader takes."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: str
    params: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(_Request)
_encoder = msgspec.json.Encoder()


class BadLine(ValueError):
    """A line that is no message; ``answer`` is the error to send for it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.answer = types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=message))


class LineBuffer:
    """Bytes to lines; holds at most one line that is not complete, of at most the limit."""

    def __init__(self, limit: int = LINE_MAX_BYTES) -> None:
        """``limit`` is in bytes, without the newline."""
        self._limit = limit
        self._data = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | BadLine]:
        """The lines that ``data`` completes, blank ones left out, and what is wrong with those that are too long."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            yield from self._take(data[start:end], complete=True)
            start = end + 1
        yield from self._take(data[start:], complete=False)

    def _take(self, part: bytes, *, complete: bool) -> Iterator[bytes | BadLine]:
        if self._skipping:
            self._skipping = not complete
            return
        if len(self._data) + len(part) > self._limit:
            self._data.clear()
            self._skipping = not complete
            yield BadLine(
                types.INVALID_REQUEST, f"a message is over the limit of {self._limit} bytes; send a shorter one"
            )
            return
        self._data += part
        if complete:
            line = bytes(self._data).strip()
            self._data.clear()
            if line:
                yield line


def parsed(line: bytes) -> types.JSONRPCMessage:
    """A line as a message.

    Raises:
        BadLine: it is none.
    """
    if len(line) > _SMALL_BYTES and _parts(line) > PARTS_MAX:
        raise BadLine(types.INVALID_REQUEST, f"a message holds more than {PARTS_MAX} values; send a simpler one")
    try:
        request = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # no request of the usual shape: the SDK's own reader says what it is
    else:
        fields: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id, "method": request.method}
        if request.params is not msgspec.UNSET:
            fields["params"] = request.params
        return types.JSONRPCRequest.model_construct(**fields)
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        if any(problem["type"] == "json_invalid" for problem in error.errors(include_url=False, include_input=False)):
            raise BadLine(types.PARSE_ERROR, "not valid JSON") from error
        raise BadLine(types.INVALID_REQUEST, "not a JSON-RPC 2.0 message") from error


def _parts(line: bytes) -> int:
    bare = _STRINGS.sub(b"", line)
    return bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def written(message: types.JSONRPCMessage) -> bytes:
    """A message as its line, newline included."""
    if isinstance(message, types.JSONRPCResponse):  # a result is JSON already, and many times faster so
        return _encoder.encode({"jsonrpc": "2.0", "id": message.id, "result": message.result}) + b"\n"
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
