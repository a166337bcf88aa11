"""What is wrong with a model's parameters never leaves the container, and is named in one line."""

from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from compass_forged.agent import ForgeToolError
from compass_forged.wire.codec import decode_call, encode_call
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CreateIssue,
    CreatePullRequest,
    ForgeSelector,
    GetIssue,
    InlineComment,
    ListIssues,
    SubmitReview,
    Subscribe,
    Unsubscribe,
)
from tests.support.tool_world import ANSWERS, Transport, tools_over

ISSUE = {"repo": "acme/site", "issue_number": 7}
REVIEW = {"repo": "acme/site", "pull_number": 8, "verdict": "approve"}


async def refusal(name: str, parameters: Any) -> str:
    """What the tool says; nothing was sent."""
    transport = Transport()
    with pytest.raises(ForgeToolError) as caught:
        await tools_over(transport)[name].execute("call_1", parameters)
    assert transport.calls == []
    assert (caught.value.code, caught.value.outcome, caught.value.tool) == ("invalid_argument", "not_sent", name)
    text = str(caught.value)
    assert text.startswith(f"{name} failed: invalid_argument: ")
    assert len(text.splitlines()) == 1
    return text.removeprefix(f"{name} failed: invalid_argument: ")


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("forge_get_issue", {**ISSUE, "isue_number": 7}, "unknown parameter 'isue_number'; did you mean issue_number?"),
        (
            "forge_get_issue",
            {**ISSUE, "zzz": None},
            "unknown parameter 'zzz'; known are repo, issue_number, forge_provider, forge_host",
        ),
        (
            "forge_submit_review",
            {**REVIEW, "comments": [{"path": "a", "lin": 1, "body": "x"}]},
            "comments[0]: unknown parameter 'lin'; did you mean line?",
        ),
        ("forge_get_issue", {"repo": "acme/site"}, "issue_number: required parameter is missing"),
        ("forge_get_issue", {"repo": None, "issue_number": 7}, "repo: required parameter is missing"),
        (
            "forge_submit_review",
            {**REVIEW, "comments": [{"path": "a", "line": 1, "body": "x"}, {"path": "a", "line": 1}]},
            "comments[1].body: required parameter is missing",
        ),
        ("forge_get_issue", "repo", "expected an object with the tool's parameters"),
        ("forge_get_issue", None, "expected an object with the tool's parameters"),
        ("forge_get_issue", ["repo"], "expected an object with the tool's parameters"),
        ("forge_get_issue", {**ISSUE, "repo": 7}, "repo: expected text, not blank; at most 512 characters"),
        ("forge_get_issue", {**ISSUE, "repo": " \t"}, "repo: must not be blank"),
        ("forge_get_issue", {**ISSUE, "repo": "\u200b\u2060"}, "repo: must not be blank"),
        ("forge_get_issue", {**ISSUE, "repo": "x" * 513}, "repo: expected text, not blank; at most 512 characters"),
        ("forge_get_issue", {**ISSUE, "issue_number": 0}, "issue_number: expected an integer from 1 to 2^63-1"),
        ("forge_get_issue", {**ISSUE, "issue_number": -1}, "issue_number: expected an integer from 1 to 2^63-1"),
        ("forge_get_issue", {**ISSUE, "issue_number": 2**63}, "issue_number: expected an integer from 1 to 2^63-1"),
        ("forge_get_issue", {**ISSUE, "issue_number": 10**40}, "issue_number: expected an integer from 1 to 2^63-1"),
        ("forge_get_issue", {**ISSUE, "issue_number": "7"}, "issue_number: expected an integer from 1 to 2^63-1"),
        ("forge_get_issue", {**ISSUE, "issue_number": 7.5}, "issue_number: expected an integer from 1 to 2^63-1"),
        ("forge_get_issue", {**ISSUE, "issue_number": True}, "issue_number: expected an integer from 1 to 2^63-1"),
        ("forge_list_issues", {"repo": "a/b", "limit": 101}, "limit: expected an integer from 1 to 100"),
        ("forge_list_issues", {"repo": "a/b", "limit": 0}, "limit: expected an integer from 1 to 100"),
        ("forge_list_issues", {"repo": "a/b", "state": "opened"}, "state: expected one of all, closed, open"),
        ("forge_list_issues", {"repo": "a/b", "state": ["open"]}, "state: expected one of all, closed, open"),
        ("forge_list_issues", {"repo": "a/b", "labels": "bug"}, "labels: expected a list, at most 100 of them"),
        ("forge_list_issues", {"repo": "a/b", "labels": ["bug", ""]}, "labels[1]: must not be blank"),
        (
            "forge_list_issues",
            {"repo": "a/b", "labels": [None]},
            "labels[0]: expected text, not blank; at most 256 characters",
        ),
        ("forge_list_issues", {"repo": "a/b", "labels": ["x"] * 101}, "labels: expected a list, at most 100 of them"),
        ("forge_list_issues", {"repo": "a/b", "cursor": ""}, "cursor: must not be blank"),
        (
            "forge_submit_review",
            {**REVIEW, "verdict": "lgtm"},
            "verdict: expected one of approve, comment, request_changes",
        ),
        (
            "forge_submit_review",
            {**REVIEW, "verdict": "request_changes"},
            "body: must not be blank in a review whose verdict is request_changes; only approve needs none",
        ),
        (
            "forge_submit_review",
            {**REVIEW, "verdict": "comment", "body": "\n\u200b "},
            "body: must not be blank in a review whose verdict is comment; only approve needs none",
        ),
        ("forge_submit_review", {**REVIEW, "comments": [1]}, "comments[0]: expected an object"),
        (
            "forge_submit_review",
            {**REVIEW, "comments": [{"path": "a", "line": 1, "body": "x", "side": "right"}]},
            "comments[0].side: expected one of LEFT, RIGHT",
        ),
        (
            "forge_submit_review",
            {**REVIEW, "comments": [{"path": "a", "line": 1, "body": "x", "start_side": "LEFT"}]},
            "comments[0].start_side: needs start_line",
        ),
        (
            "forge_submit_review",
            {**REVIEW, "comments": [{"path": "a", "line": 1, "body": "x", "start_line": 2}]},
            "comments[0].start_line: must not be after line, which is the last line",
        ),
        (
            "forge_submit_review",
            {**REVIEW, "comments": [{"path": "src/x\udce9.py", "line": 1, "body": "x"}]},
            "comments[0].path: holds a lone surrogate ('\\udce9' at character 5), which is no text; leave it out",
        ),
        (
            "forge_create_pull_request",
            {"repo": "a/b", "title": "t", "head_ref": "h", "draft": "yes"},
            "draft: expected true or false",
        ),
        (
            "forge_subscribe",
            {"repo": "a/b", "kind": "pr", "number": 1},
            "kind: expected one of issue, pull_request",
        ),
        (
            "forge_get_issue",
            {**ISSUE, "forge_host": "git.example"},
            "forge_host: needs forge_provider; name the provider, or leave the host out",
        ),
        (
            "forge_get_issue",
            {**ISSUE, "forge_provider": "bitbucket"},
            "forge_provider: expected one of forgejo, github, gitlab, linear",
        ),
        (
            "forge_unsubscribe",
            {"subscription_id": "x" * 129},
            "subscription_id: expected text, not blank; at most 128 characters",
        ),
    ],
)
async def test_what_is_wrong_is_named(name: str, parameters: Any, said: str) -> None:
    assert await refusal(name, parameters) == said


async def test_a_name_that_is_no_text_or_far_too_long_is_named_in_one_line() -> None:
    assert "unknown parameter '7'" in await refusal("forge_get_issue", {**ISSUE, 7: 1})
    assert len(await refusal("forge_get_issue", {**ISSUE, "x\n" * 10_000: 1})) < 400


async def test_what_is_nested_without_end_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    assert await refusal("forge_list_issues", {"repo": "a/b", "labels": deep}) == "the parameters are nested too deeply"


async def test_a_body_that_fits_no_frame_is_refused() -> None:
    said = await refusal("forge_comment_on_issue", {**ISSUE, "body": "x" * 262_145})
    assert said == "body: expected text, not blank; at most 262144 characters"


async def sent(name: str, parameters: dict[str, Any]) -> tuple[Arm, ForgeSelector | None]:
    """What went out."""
    transport = Transport(ANSWERS[name][0][2])
    await tools_over(transport)[name].execute("call_1", parameters)
    (call,) = transport.calls
    assert decode_call(encode_call(call)) == call
    return call.arm, call.forge


COMMENT = {"path": "a.py", "line": 9, "body": "x"}


@pytest.mark.parametrize(
    ("name", "parameters", "arm"),
    [
        ("forge_get_issue", ISSUE, GetIssue(repo="acme/site", issue_number=7)),
        ("forge_get_issue", {**ISSUE, "issue_number": 7.0}, GetIssue(repo="acme/site", issue_number=7)),
        ("forge_get_issue", {**ISSUE, "issue_number": 2**63 - 1}, GetIssue(repo="acme/site", issue_number=2**63 - 1)),
        ("forge_list_issues", {"repo": "SEA"}, ListIssues(repo="SEA")),
        (
            "forge_list_issues",
            {"repo": "a/b", "state": "all", "labels": ["bug"], "limit": 100, "cursor": "p2"},
            ListIssues(repo="a/b", state="all", labels=["bug"], limit=100, cursor="p2"),
        ),
        (
            "forge_comment_on_issue",
            {**ISSUE, "body": "line1\\nline2"},
            CommentOnIssue(repo="acme/site", issue_number=7, body="line1\\nline2"),
        ),
        ("forge_submit_review", REVIEW, SubmitReview(repo="acme/site", pull_number=8, verdict="approve")),
        (
            "forge_submit_review",
            {
                **REVIEW,
                "verdict": "request_changes",
                "body": "two",
                "comments": [COMMENT, {**COMMENT, "side": "RIGHT", "start_line": 12, "start_side": "LEFT"}],
            },
            SubmitReview(
                repo="acme/site",
                pull_number=8,
                verdict="request_changes",
                body="two",
                comments=[
                    InlineComment(path="a.py", line=9, body="x"),
                    InlineComment(path="a.py", line=9, body="x", side="RIGHT", start_line=12, start_side="LEFT"),
                ],
            ),
        ),
        ("forge_create_issue", {"repo": "a/b", "title": "t"}, CreateIssue(repo="a/b", title="t")),
        ("forge_create_issue", {"repo": "a/b", "title": "t", "body": ""}, CreateIssue(repo="a/b", title="t")),
        (
            "forge_create_pull_request",
            {"repo": "a/b", "title": "t", "head_ref": "h", "base_ref": "main", "draft": True, "body": "b"},
            CreatePullRequest(repo="a/b", title="t", head_ref="h", base_ref="main", draft=True, body="b"),
        ),
        (
            "forge_subscribe",
            {"repo": "a/b", "kind": "pull_request", "number": 8},
            Subscribe(repo="a/b", kind="pull_request", number=8),
        ),
        ("forge_unsubscribe", {"subscription_id": "3f0c"}, Unsubscribe(subscription_id="3f0c")),
    ],
)
async def test_parameters_become_the_arm(name: str, parameters: dict[str, Any], arm: Arm) -> None:
    assert await sent(name, parameters) == (arm, None)


@pytest.mark.parametrize(
    ("selector", "forge"),
    [
        ({"forge_provider": "linear"}, ForgeSelector(provider="linear")),
        ({"forge_provider": "github", "forge_host": "git.example"}, ForgeSelector("github", "git.example")),
        ({"forge_provider": None, "forge_host": None}, None),
    ],
)
async def test_the_forge_is_named_only_where_the_model_names_it(
    selector: dict[str, Any], forge: ForgeSelector | None
) -> None:
    assert (await sent("forge_get_issue", ISSUE | selector))[1] == forge


# --- both forms -----------------------------------------------------------------------------------------------------


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a strict schema, within the bounds that it does not hold."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema["type"]
    nullable = st.none() if isinstance(kind, list) else st.nothing()
    match kind[0] if isinstance(kind, list) else kind:
        case "string":
            return nullable | st.text(st.sampled_from("abc/é \n"), max_size=8).map(lambda text: text + "x")
        case "integer":
            return nullable | st.integers(1, 100)
        case "boolean":
            return nullable | st.booleans()
        case "array":
            return nullable | st.lists(values(schema["items"]), max_size=2)
        case _:
            return st.fixed_dictionaries({name: values(part) for name, part in schema["properties"].items()})


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


async def outcomes(name: str, *calls: dict[str, Any]) -> list[object]:
    """What each of the calls comes to."""
    found: list[object] = []
    for parameters in calls:
        try:
            found.append(await sent(name, parameters))
        except ForgeToolError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("name", list(ANSWERS))
def test_the_strict_form_accepts_the_same_calls(name: str) -> None:
    tool = tools_over(Transport())[name]
    strict, plain = Draft202012Validator(tool.strict_parameters), Draft202012Validator(tool.parameters)

    @settings(max_examples=30)
    @given(values(tool.strict_parameters))
    def check(parameters: dict[str, Any]) -> None:
        bare = without_nulls(parameters)
        strict.validate(parameters)
        plain.validate(bare)
        given, stripped = trio.run(outcomes, name, parameters, bare)
        assert given == stripped

    check()


@pytest.mark.parametrize("name", list(ANSWERS))
async def test_the_scenes_are_calls_of_the_plain_form(name: str) -> None:
    for _, parameters, _ in ANSWERS[name]:
        Draft202012Validator(tools_over(Transport())[name].parameters).validate(parameters)
        await sent(name, parameters)
