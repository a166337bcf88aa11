"""MCP's stdio framing: one JSON-RPC message a line, with a limit on the line and on what it may unfold to. Pure.

A line over the limit is skipped to its end and answered with an error once; what follows it is read as ever. The error
bears the id of the request where that can be told, since a client that never sees its id again waits in vain.
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
_EDGE_BYTES: Final = 512
"""How much of either end of a line over the limit is kept to find its id."""
_ID: Final = rb'"id"\s*:\s*(-?[0-9]{1,18}|"[^"\\]{0,200}")\s*'
# The id is the request's own, and not one inside its params, only as one of the first members or as the last.
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,100}"\s*,\s*){0,2}' + _ID + rb"[,}]")
_ID_LAST: Final = re.compile(rb"[{,]\s*" + _ID + rb'(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,100}"\s*){0,2}\}\s*\Z')
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

    def __init__(self, code: int, message: str, line: bytes) -> None:
        """``line`` is the line, or its two ends."""
        super().__init__(message)
        error = types.ErrorData(code=code, message=message)
        self.answer = types.JSONRPCError(jsonrpc="2.0", id=_id_of(line), error=error)


def _id_of(line: bytes) -> int | str | None:
    """The id of a request that cannot be read otherwise; None where it is not plain to see."""
    found = _ID_FIRST.match(line) or _ID_LAST.search(line[-_EDGE_BYTES:])
    try:
        return msgspec.json.decode(found[1], type=int | str) if found else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class LineBuffer:
    """Bytes to lines; holds at most one line that is not complete, of at most the limit."""

    def __init__(self, limit: int = LINE_MAX_BYTES) -> None:
        """``limit`` is in bytes, without the newline."""
        self._limit = limit
        self._data = bytearray()
        self._skipping = False
        self._head = b""  # of the line that is skipped

    def feed(self, data: bytes) -> Iterator[bytes | BadLine]:
        """The lines that ``data`` completes, blank ones left out, and what is wrong with those that are too long."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            yield from self._take(data[start:end], complete=True)
            start = end + 1
        yield from self._take(data[start:], complete=False)

    def _take(self, part: bytes, *, complete: bool) -> Iterator[bytes | BadLine]:
        if self._skipping or len(self._data) + len(part) > self._limit:
            yield from self._skip(part, complete=complete)
            return
        self._data += part
        if complete:
            line = bytes(self._data).strip()
            self._data.clear()
            if line:
                yield line

    def _skip(self, part: bytes, *, complete: bool) -> Iterator[BadLine]:
        """Keep of a line over the limit its head, and in ``_data`` its tail; say what is wrong at its end."""
        if not self._skipping:
            self._skipping = True
            self._head = (bytes(self._data[:_EDGE_BYTES]) + part[:_EDGE_BYTES])[:_EDGE_BYTES]
        self._data[:] = self._data[-_EDGE_BYTES:] + part[-_EDGE_BYTES:]
        if complete:
            line = self._head + b"\0" + bytes(self._data)
            self._skipping = False
            self._head = b""
            self._data.clear()
            why = f"a message is over the limit of {self._limit} bytes; send a shorter one"
            yield BadLine(types.INVALID_REQUEST, why, line)


def parsed(line: bytes) -> types.JSONRPCMessage:
    """A line as a message.

    Raises:
        BadLine: it is none.
    """
    if len(line) > _SMALL_BYTES and _parts(line) > PARTS_MAX:
        raise BadLine(types.INVALID_REQUEST, f"a message holds more than {PARTS_MAX} values; send a simpler one", line)
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
            hint = "; a lone surrogate is no text" if b"\\ud" in line.lower() else ""
            raise BadLine(types.PARSE_ERROR, f"not valid JSON{hint}", line) from error
        raise BadLine(types.INVALID_REQUEST, "not a JSON-RPC 2.0 message", line) from error


def _parts(line: bytes) -> int:
    bare = _STRINGS.sub(b"", line)
    return bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def written(message: types.JSONRPCMessage) -> bytes:
    """A message as its line, newline included."""
    if isinstance(message, types.JSONRPCResponse):  # a result is JSON already, and many times faster so
        return _encoder.encode({"jsonrpc": "2.0", "id": message.id, "result": message.result}) + b"\n"
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
