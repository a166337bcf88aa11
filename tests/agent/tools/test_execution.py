"""How a tool call runs: its ids and keys, its second attempt, and how it fails; under trio and under asyncio."""

from collections.abc import Mapping

import anyio
import pytest

from compass_forged.agent import (
    AgentError,
    CallIdInUse,
    CallTooLarge,
    ConnectionLost,
    DaemonUnreachable,
    ForgeBroker,
    ForgeCall,
    ForgeCallFailed,
    ForgeFault,
    ForgeTimeout,
    ForgeToolError,
    ResultArm,
    create_forge_tools,
)
from compass_forged.agent.tools import execution
from compass_forged.wire.schema import (
    CALL_ID_MAX_BYTES,
    IssueResult,
    IssuesResult,
    PullRequestResult,
    UnsubscribedResult,
)
from tests.support.scripted_daemon import run
from tests.support.tool_world import ANSWERS, PULL_REQUEST, SITE, Transport, issue, tools_over

CREATE = {"repo": "acme/site", "title": "Sign-in ends in a blank page"}
MADE = IssueResult(issue=issue())
REPLAYED = IssueResult(issue=issue(replayed=True))
LOST = ConnectionLost("the daemon closed it")
LOOK = (
    "whether the issue was created is unknown: look with forge_list_issues before you call again, since a new call is "
    "a new issue"
)


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "RETRY_PAUSE_SECONDS", 0.01)


@pytest.fixture(params=["trio", "asyncio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def outcome(
    transport: "Transport | Hanging",
    name: str,
    parameters: Mapping[str, object],
    *,
    backend: str = "trio",
    tool_call_id: str = "call_1",
    create_seconds: float = 60,
) -> str | ForgeToolError:
    """The text, or the failure."""

    async def execute() -> str | ForgeToolError:
        tools = create_forge_tools(ForgeBroker(transport), create_seconds=create_seconds)
        try:
            return await {tool.name: tool for tool in tools}[name].execute(tool_call_id, parameters)
        except ForgeToolError as error:
            return error

    done = run(backend, execute)
    assert isinstance(done, str | ForgeToolError)
    return done


class Hanging:
    """Fails the first calls as told; the next one is never answered."""

    def __init__(self, *failures: AgentError) -> None:
        self.calls: list[ForgeCall] = []
        self.failures = list(failures)

    async def forge(self, call: ForgeCall) -> ResultArm:
        self.calls.append(call)
        if self.failures:
            raise self.failures.pop(0)
        await anyio.sleep_forever()
        raise AssertionError


# --- ids and keys ---------------------------------------------------------------------------------------------------


def test_a_call_goes_out_under_the_tool_call_s_id_and_only_creates_have_a_key(backend: str) -> None:
    for name, scenes in ANSWERS.items():
        transport = Transport(scenes[0][2])
        assert isinstance(outcome(transport, name, scenes[0][1], backend=backend, tool_call_id="toolu_01"), str)
        (call,) = transport.calls
        assert call.call_id == "toolu_01"
        assert call.client_request_id.endswith(":toolu_01") == (name.startswith("forge_create_"))
        assert bool(call.client_request_id) == (name.startswith("forge_create_"))


def test_two_tools_of_one_broker_share_its_keys_and_two_brokers_do_not() -> None:
    transport = Transport(MADE)
    tools = tools_over(transport)

    async def main() -> None:
        await tools["forge_create_issue"].execute("call_1", CREATE)
        await tools["forge_create_issue"].execute("call_1", CREATE)
        await tools_over(transport)["forge_create_issue"].execute("call_1", CREATE)

    run("trio", main)
    keys = [call.client_request_id for call in transport.calls]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("tool_call_id", ["x" * 200, "é" * 100, "a\udce9"])
def test_an_id_that_no_call_may_have_is_replaced_by_its_digest(tool_call_id: str) -> None:
    transport = Transport(MADE)
    assert isinstance(outcome(transport, "forge_create_issue", CREATE, tool_call_id=tool_call_id), str)
    assert transport.calls[0].call_id.startswith("sha256-")
    assert len(transport.calls[0].call_id.encode()) <= CALL_ID_MAX_BYTES


def test_an_empty_id_is_refused() -> None:
    transport = Transport()
    failure = outcome(transport, "forge_get_issue", {"repo": "a/b", "issue_number": 1}, tool_call_id="")
    assert str(failure) == (
        "forge_get_issue failed: invalid_argument: tool_call_id is empty; give each tool call its own id"
    )
    assert transport.calls == []


def test_an_id_that_is_in_flight_gets_a_suffix_and_the_key_stays() -> None:
    transport = Transport(CallIdInUse("call_1"), CallIdInUse("call_1"), MADE)
    assert isinstance(outcome(transport, "forge_create_issue", CREATE), str)
    ids = [call.call_id for call in transport.calls]
    assert ids[0] == "call_1"
    assert all(each.startswith("call_1.") for each in ids[1:])
    assert len(set(ids)) == 3
    assert len({call.client_request_id for call in transport.calls}) == 1


def test_ids_that_are_all_in_flight_end_with_one_line() -> None:
    failure = outcome(Transport(CallIdInUse("call_1")), "forge_create_issue", CREATE)
    assert isinstance(failure, ForgeToolError)
    assert failure.code == "invalid_argument"


# --- a create's second attempt --------------------------------------------------------------------------------------

UNKNOWN = [
    LOST,
    ForgeCallFailed("unavailable", "the forge answered 502", outcome="unknown"),
    ForgeFault("unavailable", "draining", 5),
    ForgeFault("internal", "a part of the daemon failed"),
    ForgeTimeout(1, "unknown"),
]


@pytest.mark.parametrize("failure", UNKNOWN, ids=str)
def test_a_create_of_unknown_outcome_is_sent_once_more_under_its_key(failure: AgentError, backend: str) -> None:
    transport = Transport(failure, REPLAYED)
    text = outcome(transport, "forge_create_issue", CREATE, backend=backend)
    assert text == f"Issue #7 in acme/site already created by an earlier attempt: {SITE}/issues/7"
    first, second = transport.calls
    assert first == second


def test_a_second_attempt_is_the_last_and_the_text_says_to_look(backend: str) -> None:
    transport = Transport(LOST)
    failure = outcome(transport, "forge_create_issue", CREATE, backend=backend)
    assert len(transport.calls) == 2
    assert str(failure) == (
        "forge_create_issue failed: unavailable: the connection to the daemon was lost: the daemon closed it; " + LOOK
    )


def test_a_definite_second_answer_does_not_settle_an_unknown_first() -> None:
    transport = Transport(LOST, ForgeCallFailed("permission_denied", "out of scope", outcome="not_sent"))
    failure = outcome(transport, "forge_create_issue", CREATE)
    assert isinstance(failure, ForgeToolError)
    assert failure.outcome == "unknown"
    assert str(failure) == f"forge_create_issue failed: permission_denied: out of scope; {LOOK}"


@pytest.mark.parametrize(
    "failure",
    [
        ForgeCallFailed("invalid_argument", "title is too long", outcome="rejected"),
        ForgeCallFailed("resource_exhausted", "wait", 1500, outcome="not_sent"),
        DaemonUnreachable("/run/forge/forge.sock", "nobody listens", transient=True),
        ForgeFault("permission_denied", "no session is bound"),
        CallTooLarge("call 'call_1': frame: too long"),
    ],
    ids=str,
)
def test_a_create_that_surely_did_not_happen_is_not_sent_again(failure: AgentError) -> None:
    transport = Transport(failure, MADE)
    failed = outcome(transport, "forge_create_issue", CREATE)
    assert len(transport.calls) == 1
    assert isinstance(failed, ForgeToolError)
    assert failed.code == failure.code
    assert "look with" not in str(failed)


@pytest.mark.parametrize("failures", [[], [LOST]], ids=["first", "second"])
def test_a_create_ends_at_its_deadline_as_unknown(failures: list[AgentError], backend: str) -> None:
    transport = Hanging(*failures)
    failure = outcome(transport, "forge_create_issue", CREATE, backend=backend, create_seconds=0.1)
    assert isinstance(failure, ForgeToolError)
    assert failure.outcome == "unknown"
    assert str(failure).endswith(LOOK)
    assert len(transport.calls) == len(failures) + 1


def test_a_create_does_not_wait_for_a_retry_that_comes_after_its_deadline() -> None:
    transport = Transport(ForgeFault("unavailable", "draining", 60_000), MADE)
    failure = outcome(transport, "forge_create_issue", CREATE, create_seconds=1)
    assert str(failure) == f"forge_create_issue failed: unavailable: draining; retry after 60000ms; {LOOK}"
    assert len(transport.calls) == 1


def test_other_writes_are_never_sent_again_and_say_to_look() -> None:
    reads = {
        "forge_comment_on_issue": "forge_get_issue",
        "forge_comment_on_pull_request": "forge_get_pull_request",
        "forge_submit_review": "forge_get_pull_request",
    }
    for name, read in reads.items():
        transport = Transport(LOST)
        assert f"look with {read} before you call again" in str(outcome(transport, name, ANSWERS[name][0][1]))
        assert len(transport.calls) == 1


def test_a_lost_read_says_nothing_of_outcomes() -> None:
    failure = outcome(Transport(LOST), "forge_get_issue", {"repo": "a/b", "issue_number": 1})
    assert str(failure) == (
        "forge_get_issue failed: unavailable: the connection to the daemon was lost: the daemon closed it"
    )


def test_a_caller_who_is_cancelled_stops_waiting(backend: str) -> None:
    transport = Hanging()

    async def main() -> bool:
        tools = {tool.name: tool for tool in create_forge_tools(ForgeBroker(transport))}
        with anyio.move_on_after(0.05) as scope:
            await tools["forge_create_issue"].execute("call_1", CREATE)
        return scope.cancelled_caught

    assert run(backend, main)
    assert len(transport.calls) == 1


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ANSWERS))
def test_an_answer_of_another_arm_is_a_protocol_violation(name: str) -> None:
    wrong: ResultArm = IssuesResult(items=[]) if name != "forge_list_issues" else UnsubscribedResult()
    failure = outcome(Transport(wrong), name, ANSWERS[name][0][1])
    arm = "issues" if name != "forge_list_issues" else "unsubscribed"
    assert str(failure).startswith(
        f"{name} failed: internal: protocol violation: the daemon answered with the result arm {arm}"
    )


def test_a_create_takes_the_other_kind_only_when_it_is_replayed() -> None:
    other = PullRequestResult(pull_request=PULL_REQUEST)
    assert "protocol violation" in str(outcome(Transport(other), "forge_create_issue", CREATE))


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ForgeCallFailed("not_found", "no such artifact"), "not_found: no such artifact"),
        (ForgeCallFailed("unimplemented", "linear does\nnot"), "unimplemented: linear does not"),
        (ForgeCallFailed("resource_exhausted", "wait", 1500), "resource_exhausted: wait; retry after 1500ms"),
        (ForgeFault("permission_denied", "unbound"), "permission_denied: unbound"),
        (ForgeCallFailed("a b", "x"), "(malformed): x"),
    ],
    ids=str,
)
def test_failures_and_faults_read_alike(failure: AgentError, text: str) -> None:
    failed = outcome(Transport(failure), "forge_get_issue", {"repo": "a/b", "issue_number": 1})
    assert str(failed) == f"forge_get_issue failed: {text}"
    assert isinstance(failed, AgentError)
