"""The daemon's calls and replies as protobuf messages, for the contenders that speak protobuf.

The same fields under the same names as in ``wire/schema.py``, for the two operations of the round trips. The
descriptors are built in code, as protoc's output builds them on import, so that nothing has to be compiled; the classes
are those of protobuf's own runtime (upb, in C).
"""

from typing import Any, Final, TypeAlias

from google.protobuf.descriptor_pb2 import (  # deptry: ignore[DEP004] -- benchmarks run in the development environment
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool  # deptry: ignore[DEP004] -- likewise
from google.protobuf.message_factory import GetMessageClass  # deptry: ignore[DEP004] -- likewise

from bench.support.messages import Template, numbered_call
from compass_forged.wire.schema import Arm, CommentOnIssue, CreateIssue

SERVICE: Final = "bench.RoundTrip"
METHOD: Final = "Call"
TIMEOUT_SECONDS: Final = 60.0
"""The deadline that every call carries: what the agent library waits for a call without one of its own."""

Message: TypeAlias = Any
"""A message of a class that is made at run time, which no type checker can know."""

_NUMBER: Final = 1_000_000_000
_STRING: Final = FieldDescriptorProto.TYPE_STRING
_INT64: Final = FieldDescriptorProto.TYPE_INT64
_BOOL: Final = FieldDescriptorProto.TYPE_BOOL
_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "ForgeSelector": {"provider": _STRING, "host": _STRING},
    "CreateIssue": {"repo": _STRING, "title": _STRING, "body": _STRING, "labels": [_STRING]},
    "CommentOnIssue": {"repo": _STRING, "issue_number": _INT64, "body": _STRING},
    "ForgeCall": {
        "call_id": _STRING,
        "forge": "ForgeSelector",
        "client_request_id": _STRING,
        "timeout_ms": _INT64,
        "create_issue": "CreateIssue",
        "comment_on_issue": "CommentOnIssue",
    },
    "ForgeRef": {"provider": _STRING, "host": _STRING},
    "ForgeAccount": {"login": _STRING, "is_bot": _BOOL},
    "Attribution": {"agent": _STRING, "owner": _STRING, "session": _STRING, "verified": _BOOL},
    "Issue": {
        "forge": "ForgeRef",
        "repo": _STRING,
        "number": _INT64,
        "title": _STRING,
        "body": _STRING,
        "state": _STRING,
        "labels": [_STRING],
        "url": _STRING,
        "author": "ForgeAccount",
        "attribution": "Attribution",
        "created_at": _STRING,
        "updated_at": _STRING,
    },
    "CommentRef": {"url": _STRING, "comment_id": _STRING},
    "ForgeReply": {"call_id": _STRING, "issue": "Issue", "comment": "CommentRef"},
}
"""Message to field to type, numbered in this order: a number is a scalar, a list is repeated, a name a message."""
_ARMS: Final = {"ForgeCall": ("create_issue", "comment_on_issue"), "ForgeReply": ("issue", "comment")}
"""Of these fields a message has one."""


def _described(name: str, fields: dict[str, Any]) -> DescriptorProto:
    described = DescriptorProto(name=name)
    arms = _ARMS.get(name, ())
    if arms:
        described.oneof_decl.add(name="arm")
    for number, (field, kind) in enumerate(fields.items(), start=1):
        repeated = isinstance(kind, list)
        made = described.field.add(
            name=field,
            number=number,
            label=FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL,
        )
        if isinstance(kind, str):
            made.type = FieldDescriptorProto.TYPE_MESSAGE
            made.type_name = f".bench.{kind}"
        else:
            made.type = kind[0] if repeated else kind
        if field in arms:
            made.oneof_index = 0
    return described


def _classes() -> dict[str, Message]:
    pool = DescriptorPool()
    pool.Add(
        FileDescriptorProto(
            name="bench.proto",
            package="bench",
            syntax="proto3",
            message_type=[_described(name, fields) for name, fields in _FIELDS.items()],
        )
    )
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"bench.{name}")) for name in _FIELDS}


_CLASSES: Final = _classes()
ForgeCall: Final = _CLASSES["ForgeCall"]
ForgeReply: Final = _CLASSES["ForgeReply"]


class Calls:
    """Makes the calls of an operation, each a message of its own."""

    def __init__(self, arm: Arm) -> None:
        """``arm`` is what ``messages.arm_of`` returns."""
        self._arm = arm
        if isinstance(arm, CommentOnIssue):
            self._field = "comment_on_issue"
            message = _CLASSES["CommentOnIssue"](repo=arm.repo, issue_number=arm.issue_number, body=arm.body)
        else:
            assert isinstance(arm, CreateIssue)
            self._field = "create_issue"
            message = _CLASSES["CreateIssue"](repo=arm.repo, title=arm.title, body=arm.body, labels=arm.labels)
        self._message = message

    def call(self, number: int) -> Message:
        """The call ``number``, under the ids of the daemon's call of that number."""
        made = numbered_call(self._arm, number)
        return ForgeCall(call_id=made.call_id, client_request_id=made.client_request_id, **{self._field: self._message})

    def sizes(self) -> dict[str, int]:
        """The size of a call's message, and of its reply's."""
        call = self.call(_NUMBER)
        return {str(call.ByteSize()): Forge().answer(call).ByteSize()}

    def template(self) -> Template:
        """The calls encoded, for a client that makes them without the runtime."""
        return Template(lambda number: bytes(self.call(number).SerializeToString()))


class Forge:
    """What the contenders' handlers answer with: what the benchmark's provider answers the daemon with."""

    def __init__(self) -> None:
        """Numbers of ten digits, so that all replies are of one size."""
        self._next = _NUMBER

    def answer(self, call: Message) -> Message:
        """The reply to a call.

        Raises:
            ValueError: the call has no arm.
        """
        self._next += 1
        arm = call.WhichOneof("arm")
        if arm == "comment_on_issue":
            asked = call.comment_on_issue
            url = f"https://forge.test/{asked.repo}/issues/{asked.issue_number}#issuecomment-{self._next}"
            comment = _CLASSES["CommentRef"](url=url, comment_id=str(self._next))
            return ForgeReply(call_id=call.call_id, comment=comment)
        if arm == "create_issue":
            return ForgeReply(call_id=call.call_id, issue=self._issue(call.create_issue))
        raise ValueError("the call has no arm")

    def _issue(self, asked: Message) -> Message:
        return _CLASSES["Issue"](
            forge=_CLASSES["ForgeRef"](provider="github", host="forge.test"),
            repo=asked.repo,
            number=self._next,
            title=asked.title,
            body=asked.body,
            state="open",
            labels=asked.labels,
            url=f"https://forge.test/{asked.repo}/issues/{self._next}",
            author=_CLASSES["ForgeAccount"](login="compass-bot", is_bot=True),
            attribution=_CLASSES["Attribution"](agent="agent", owner="ada", session="session", verified=True),
            created_at="2026-01-01T00:00:00Z",
            updated_at="2026-01-01T00:00:00Z",
        )
