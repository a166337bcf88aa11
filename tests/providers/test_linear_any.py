"""The provider before any answer that Linear's schema allows, and before any that it does not."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import trio
from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLOutputType,
    OperationDefinitionNode,
    SelectionSetNode,
    parse,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_forged.emulator.linear_app import linear_schema
from compass_forged.errors import ForgeError
from compass_forged.ports import CallContext
from compass_forged.providers.linear import LinearProvider
from compass_forged.providers.linear_documents import DOCUMENTS
from compass_forged.wire.codec import encode_reply
from compass_forged.wire.schema import (
    CommentOnIssue,
    CreateIssue,
    GetIssue,
    Issue,
    IssueResult,
    IssuesResult,
    ListIssues,
    ResultFrame,
    arm_name,
)
from tests.support.forge_http import new_context
from tests.support.linear import STAMPED, new_http

TREES = {document.name: parse(document.text) for document in DOCUMENTS}
IDENTIFIERS = st.sampled_from(["ENG-7", "ENG-8", "OPS-7", "eng-7", "ENG-0", "", "ENG-7\n", "ENG--7", "ENG-" + "9" * 30])
TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["&amp;", STAMPED, "2026-05-04T03:02:01.000Z", "9999-99-99"]))
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "String": TEXTS,
    "ID": st.sampled_from(["t-1", "i-1", "", "x"]),
    "Float": st.floats(allow_nan=False, allow_infinity=False),
    "Int": st.integers(-(2**31), 2**31 - 1),
    "Boolean": st.booleans(),
    "DateTime": st.sampled_from(["2026-05-04T03:02:01.000Z", "2026-05-04", "0001-01-01T00:00:00Z", "soon"]),
}
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "identifier": IDENTIFIERS,
    "key": st.sampled_from(["ENG", "OPS", "eng", "E G", ""]),
    "url": st.sampled_from(["https://linear.app/acme/issue/ENG-7/t", "https://linear.app/acme", "ftp://x", "::", ""]),
    "type": st.sampled_from(["triage", "backlog", "started", "completed", "canceled", "duplicate", "new one"]),
}


class Answers:
    """Draws an answer to a document that fits the schema: every type, every null that is allowed, any length."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], name: str, variables: dict[str, Any]) -> None:
        self._draw = draw
        self._tree = TREES[name]
        self._ids = [value["id"] for value in variables.values() if isinstance(value, dict) and "id" in value]
        self._fragments = {
            one.name.value: one.selection_set
            for one in self._tree.definitions
            if isinstance(one, FragmentDefinitionNode)
        }

    def data(self) -> Any:
        operation = next(one for one in self._tree.definitions if isinstance(one, OperationDefinitionNode))
        root = linear_schema().get_root_type(operation.operation)
        assert root is not None
        return self._object(root, operation.selection_set)

    def _object(self, kind: GraphQLObjectType, selected: SelectionSetNode) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for node in selected.selections:
            if isinstance(node, FragmentSpreadNode):
                found |= self._object(kind, self._fragments[node.name.value])
            elif isinstance(node, FieldNode):
                name = node.alias.value if node.alias else node.name.value
                found[name] = self._value(kind.fields[node.name.value].type, node)
        return found

    def _value(self, kind: GraphQLOutputType, node: FieldNode) -> Any:
        if isinstance(kind, GraphQLNonNull):
            return self._some(kind.of_type, node)
        return None if self._draw(st.integers(0, 3)) == 0 else self._some(kind, node)

    def _some(self, kind: Any, node: FieldNode) -> Any:
        if isinstance(kind, GraphQLList):
            return [self._value(kind.of_type, node) for _ in range(self._draw(st.integers(0, 3)))]
        if isinstance(kind, GraphQLObjectType):
            assert node.selection_set is not None
            return self._object(kind, node.selection_set)
        if node.name.value == "id" and self._ids and self._draw(st.booleans()):
            return self._ids[0]
        return self._draw(BY_NAME.get(node.name.value, SCALARS[kind.name]))


ERRORS = st.lists(
    st.fixed_dictionaries(
        {"message": TEXTS},
        optional={
            "extensions": st.fixed_dictionaries(
                {},
                optional={
                    "type": st.sampled_from(["invalid input", "internal error", "forbidden", "lock timeout", 7]),
                    "code": st.sampled_from(["INPUT_ERROR", "FORBIDDEN", "GRAPHQL_VALIDATION_FAILED", None]),
                    "userPresentableMessage": TEXTS,
                    "validationErrors": st.just([{"constraints": {"x": "y"}}]),
                },
            )
        },
    ),
    max_size=2,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "errors", "nodes", "id", "issues", "issue"]), inner, max_size=3)
    ),
    max_leaves=12,
)
ARMS = st.sampled_from(
    [
        CreateIssue(repo="ENG", title="t", body=STAMPED, labels=["bug"]),
        CreateIssue(repo="ENG", title="t", body=STAMPED),
        CommentOnIssue(repo="ENG", issue_number=7, body=STAMPED),
        GetIssue(repo="ENG", issue_number=7),
        ListIssues(repo="ENG", limit=3, state="all"),
    ]
)


class AnyForge(httpx.AsyncBaseTransport):
    """Answers each request with what ``answer`` makes of it."""

    def __init__(self, answer: Callable[[str, dict[str, Any]], tuple[int, Any]]) -> None:
        self._answer = answer
        self.writes = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        asked = json.loads(request.content)
        self.writes += asked["operationName"] in {"IssueCreate", "CommentCreate"}
        status, body = self._answer(asked["operationName"], asked["variables"])
        return httpx.Response(status, stream=httpx.ByteStream(json.dumps(body).encode()))


async def call(forge: AnyForge, arm: Any) -> Any:
    """What an arm comes to: its result, or the one kind of error there is."""
    provider = LinearProvider(new_http(forge), create_as_user="Compass")
    context, guard = new_context()
    operation: Callable[[Any, CallContext], Awaitable[Any]] = getattr(provider, arm_name(arm))
    try:
        return await operation(arm, context)
    except ForgeError as error:
        failure = error
    assert failure.outcome in {"not_sent", "rejected", "unknown"}
    if isinstance(arm, CreateIssue | CommentOnIssue) and not guard.sent:
        assert failure.outcome == "not_sent"
    return failure


def run(forge: AnyForge, arm: Any) -> Any:
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(call, forge, arm, clock=clock)


def check(result: Any, arm: Any, forge: AnyForge) -> None:
    assert forge.writes <= 1
    if isinstance(result, ForgeError):
        assert str(result).isprintable()
    elif isinstance(result, Issue):
        assert result.number > 0
        assert result.state in {"open", "closed"}
        assert isinstance(arm, GetIssue) or (result.number, "/issue/" in result.url) == (7, True)
        encode_reply(ResultFrame(call_id="1", result=IssueResult(issue=result)))
    elif isinstance(result, IssuesResult):
        assert len(result.items) <= 30
        encode_reply(ResultFrame(call_id="1", result=result))


@given(st.data(), ARMS, ERRORS)
@settings(max_examples=60, deadline=None)
def test_whatever_the_schema_allows_comes_to_a_result_or_to_one_kind_of_error(
    data: st.DataObject, arm: Any, errors: list[Any]
) -> None:
    def answer(name: str, variables: dict[str, Any]) -> tuple[int, Any]:
        if name == "TeamByKey" and data.draw(st.integers(0, 3)):
            return 200, {"data": {"teams": {"nodes": [{"id": "t-1", "key": "ENG", "retiredAt": None}]}}}
        body = {"data": Answers(data.draw, name, variables).data()}
        beside: bool = data.draw(st.booleans())
        return 200, body | ({"errors": errors} if errors and beside else {})

    forge = AnyForge(answer)
    check(run(forge, arm), arm, forge)


@given(st.data(), ARMS)
@settings(max_examples=60, deadline=None)
def test_whatever_it_does_not_allow_does_too(data: st.DataObject, arm: Any) -> None:
    team: Any = {"data": {"teams": {"nodes": [{"id": "t-1", "key": "ENG"}]}}}

    def answer(name: str, _variables: dict[str, Any]) -> tuple[int, Any]:
        body: Any = data.draw(st.one_of(st.just(team), JSON) if name == "TeamByKey" else JSON)
        return data.draw(st.sampled_from([200, 200, 400, 404, 422, 500])), body

    forge = AnyForge(answer)
    check(run(forge, arm), arm, forge)
