"""Valid messages at random, made from the schema itself: a field or an arm that is added is fuzzed from then on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import inspect

from bench.support.fuzz_msgpack import Token, tokens_of
from compass_forged.control.schema import ControlReply, ControlRequest
from compass_forged.wire import schema
from compass_forged.wire.schema import CALL_ID_MAX_BYTES, Arm, CallFrame, ForgeCall, ForgeSelector, ReplyFrame

DocumentKind: TypeAlias = Literal["call", "reply", "control_request", "control_reply"]
KINDS: Final[tuple[DocumentKind, ...]] = ("call", "reply", "control_request", "control_reply")

_ASCII: Final = (
    "acme/site Fix the links on /about\nmain feature/x-1 request_changes LEFT @all #12 issue open pull_request c-7 "
    "github linear github.com SEA p2 x\x00y\x1b[31m\r\n<!-- agent: ada --> ../.. %2e%2e ?q=1#frag ' \" ` - at `$.call` "
) * 60
_WORLD: Final = (
    "naïve ✓ Überprüfung 修正 リンク привет 👩‍💻 e\u0301 \u202e\u2028\u0085 \ufeff \U0010ffff \ud7ff \ue000 ﬁ " * 200
)
_INTS: Final = (0, 1, 2, 30, 100, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1)


@dataclass(slots=True)
class Document:
    """A valid message.

    Attributes:
        kind: which decoder it is meant for.
        data: its bytes.
        tokens: their places.
        value: what decoding it must give.
    """

    kind: DocumentKind
    data: bytes
    value: object
    tokens: list[Token] = field(default_factory=list)


class Grammar:
    """Makes documents out of a source of randomness."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._makers: dict[DocumentKind, Callable[[], Document]] = {
            "call": self._call,
            "reply": lambda: self._plain("reply", ReplyFrame),
            "control_request": lambda: self._plain("control_request", ControlRequest),
            "control_reply": lambda: self._plain("control_reply", ControlReply),
        }

    def document(self, kind: DocumentKind) -> Document:
        """One valid message of ``kind``, tokens included."""
        made = self._makers[kind]()
        made.tokens = tokens_of(made.data)
        return made

    def _call(self) -> Document:
        arm_tree, frame_tree = self._of(Arm), self._of(CallFrame)
        frame_tree["call"] = arm_tree
        frame_tree["call_id"] = self._text(1, CALL_ID_MAX_BYTES, ascii_only=True)  # its limit is in bytes
        forge = frame_tree.get("forge")
        value = ForgeCall(
            call_id=frame_tree["call_id"],
            arm=msgspec.convert(arm_tree, Arm),
            forge=None if forge is None else msgspec.convert(forge, ForgeSelector),
            client_request_id=frame_tree.get("client_request_id", ""),
            timeout_ms=frame_tree.get("timeout_ms", 0),
        )
        return Document("call", self._packed(frame_tree), value)

    def _plain(self, kind: DocumentKind, type_: Any) -> Document:  # Any: a union is no type to the type checker
        tree = self._of(type_)
        return Document(kind, self._packed(tree), msgspec.convert(tree, type_))

    def _packed(self, tree: dict[str, Any]) -> bytes:
        return msgspec.msgpack.encode(self._shuffled(tree) if self._rng.random() < 0.3 else tree)

    def _shuffled(self, tree: Any) -> Any:
        """The same with every object's fields in another order: the tag is not the first then."""
        if isinstance(tree, dict):
            items = [(key, self._shuffled(value)) for key, value in tree.items()]
            self._rng.shuffle(items)
            return dict(items)
        return [self._shuffled(item) for item in tree] if isinstance(tree, list) else tree

    # --- values by type ---------------------------------------------------------------------------------------------

    def _of(self, type_: Any) -> Any:
        if type_ not in _SHAPES:
            _SHAPES[type_] = inspect.type_info(type_)
        return self._value(_SHAPES[type_])

    def _value(self, shape: inspect.Type) -> Any:  # noqa: C901, PLR0911 -- one case a type
        rng = self._rng
        match shape:
            case inspect.StrType():
                return self._text(shape.min_length or 0, shape.max_length)
            case inspect.IntType():
                low = -(2**63) if shape.ge is None else shape.ge
                return rng.choice(_INTS) if rng.random() < 0.9 else max(low, -rng.choice(_INTS))
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.FloatType():
                return rng.choice((0.0, -1.5, 1e300, 1e-300))
            case inspect.NoneType() | inspect.RawType():
                return None
            case inspect.LiteralType():
                return rng.choice(shape.values)
            case inspect.UnionType():
                return self._value(rng.choice(shape.types))
            case inspect.ListType():
                return [self._value(shape.item_type) for _ in range(self._length(shape.max_length))]
            case inspect.DictType():
                return {self._text(0, 20): self._text(0, 20) for _ in range(rng.choice((0, 1, 3)))}
            case inspect.StructType():
                return self._struct(shape)
        raise TypeError(f"the grammar knows no {type(shape).__name__}: teach it, the schema uses it now")

    def _struct(self, shape: inspect.StructType) -> dict[str, Any]:
        tree: dict[str, Any] = {} if shape.tag_field is None else {shape.tag_field: shape.tag}
        for item in shape.fields:
            if item.required or self._rng.random() < 0.6:
                tree[item.encode_name] = self._value(item.type)
        return tree

    def _length(self, most: int | None) -> int:
        odds = self._rng.random()
        if odds < 0.005 and most is not None:
            return most
        return 0 if odds < 0.3 else 1 + int(self._rng.random() * 3)

    def _text(self, least: int, most: int | None, *, ascii_only: bool = False) -> str:
        odds = self._rng.random()
        size = 1 + int(self._rng.random() * 20)
        if odds < 0.1:
            size = least
        elif odds < 0.15:
            size = 4000 if most is None else most
        elif odds < 0.25:
            size = 25 + int(self._rng.random() * 15)  # around where the header grows
        source = _ASCII if ascii_only or self._rng.random() < 0.8 else _WORLD
        size = max(least, min(size, len(source) if most is None else most))
        start = int(self._rng.random() * (len(source) - size))
        return source[start : start + size]


_SHAPES: Final[dict[Any, inspect.Type]] = {}  # the key may be a union

FIELD_NAMES: Final = sorted(
    {
        name
        for type_ in vars(schema).values()
        if isinstance(type_, type) and issubclass(type_, msgspec.Struct)
        for name in type_.__struct_encode_fields__
    }
)
TAGS: Final = (
    *schema.ARM_NAMES,
    *("issue", "issue_comment", "pull_request", "pr_comment", "review", "issues", "subscribed", "unsubscribed"),
    *("error", "call", "result", "fault", "open_container", "close_container", "bind_session", "status", "container"),
)
