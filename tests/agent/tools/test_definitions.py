"""The ten tools as models and frameworks see them: kept word for word, valid, and bounded in schema and description."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from compass_forged.agent import AgentTool, ForgeBroker, create_forge_tools
from compass_forged.agent.tools.catalogue import SPECS
from compass_forged.wire.schema import ARM_NAMES, ARMS, READ_ARMS, arm_name
from tests.support.golden_tools import GOLDEN, definitions, transcripts
from tests.support.tool_world import ANSWERS, Transport, tools_over

TOOLS = list(tools_over(Transport()).values())
FIELDS_OF_THE_TOOLS = {"forge_provider", "forge_host"}
PULL_TOOLS = {
    "forge_get_pull_request",
    "forge_comment_on_pull_request",
    "forge_create_pull_request",
    "forge_submit_review",
}
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)


@pytest.mark.parametrize("name", [tool.name for tool in TOOLS])
def test_a_tool_is_what_it_was(name: str) -> None:
    """See ``tests.support.golden_tools`` for a change that is wanted."""
    file = f"{name}.json"
    assert definitions()[file] == (GOLDEN / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(ANSWERS))
def test_what_a_tool_shows_is_what_it_was(name: str) -> None:
    file = f"{name}.txt"
    assert transcripts()[file] == (GOLDEN / file).read_text(encoding="utf-8")


def test_nothing_golden_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == definitions().keys() | transcripts().keys()


def test_there_is_one_tool_for_each_arm_with_its_fields() -> None:
    assert {tool.name for tool in TOOLS} == {f"forge_{name}" for name in ARM_NAMES}
    assert len(TOOLS) == 10
    fields = {
        f"forge_{arm_name_of}": set(arm.__struct_fields__) for arm_name_of, arm in zip(ARM_NAMES, ARMS, strict=True)
    }
    for tool in TOOLS:
        assert tool.parameters["properties"].keys() == fields[tool.name] | FIELDS_OF_THE_TOOLS


def test_only_reads_are_for_reading() -> None:
    reads = {f"forge_{arm.__struct_config__.tag}" for arm in READ_ARMS}
    assert {tool.name for tool in TOOLS if tool.approval == "read"} == reads


def parts(schema: dict[str, Any], name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema within a schema, by its place."""
    yield name, schema
    for key, value in schema.get("properties", {}).items():
        yield from parts(value, f"{name}.{key}")
    if "items" in schema:
        yield from parts(schema["items"], f"{name}[]")


@each_tool
@pytest.mark.parametrize("form", ["parameters", "strict_parameters"])
def test_each_schema_is_valid_json_schema_2020_12_and_plain(tool: AgentTool, form: str) -> None:
    schema: dict[str, Any] = getattr(tool, form)
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["type"] == "object"
    text = json.dumps(schema)
    assert not any(
        f'"{word}"' in text for word in ("$ref", "$defs", "anyOf", "oneOf", "allOf", "title", "default")
    ) or ("title" in schema["properties"])
    for _, part in parts(schema):
        if "properties" in part:
            assert part["additionalProperties"] is False


@each_tool
def test_each_bound_stands_in_the_schema_and_in_the_description(tool: AgentTool) -> None:
    bounded = 0
    for place, part in parts(tool.parameters):
        said = part.get("description", "")
        if place and "properties" not in part:
            assert said, place
        kind = part["type"]
        if "enum" in part:
            assert "One of " + ", ".join(part["enum"]) in said
        elif kind == "string":
            assert f"t most {part['maxLength']} characters" in said
            assert ("pattern" in part) == ("Not blank" in said)
        elif kind == "integer":
            most = {2**63 - 1: "2^63-1"}.get(part["maximum"], str(part["maximum"]))
            assert f"n integer from {part['minimum']} to {most}" in said
        elif kind == "array":
            assert f"t most {part['maxItems']} of them" in said
        bounded += kind in {"string", "integer", "array"}
    assert bounded >= 3


@each_tool
def test_the_strict_form_requires_all_and_holds_only_what_strict_apis_support(tool: AgentTool) -> None:
    plain = dict(parts(tool.parameters))
    for place, part in parts(tool.strict_parameters):
        assert part.keys() <= {
            "type",
            "description",
            "enum",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "pattern",
        }
        if "properties" in part:
            assert part["required"] == list(part["properties"])
            optional = part["properties"].keys() - set(plain[place]["required"])
            assert optional == {name for name, each in part["properties"].items() if "null" in each["type"]}
        if "enum" in part:
            assert ("null" in part["type"]) == (None in part["enum"])


@each_tool
def test_each_description_says_what_a_model_has_to_know(tool: AgentTool) -> None:
    said = tool.description
    assert re.match(r"[A-Z][^.]*\. ", said), "what it does, in one sentence"
    assert "Act only on the repositories that your task names" in said
    assert "Leave `forge_provider` out for the default GitHub" in said
    assert "set it to linear for Linear, which has issues only" in said
    if tool.name != "forge_unsubscribe":
        assert "`repo` is owner/name on GitHub, such as acme/site, and the team key on Linear, such as SEA" in said
    assert ("On Linear this answers `unimplemented`" in said) == (tool.name in PULL_TOOLS)
    subscription = tool.name in {"forge_subscribe", "forge_unsubscribe"}
    assert ("The subscription's row is kept, but NO notification is delivered yet" in said) == subscription
    writes = tool.approval == "write" and not subscription
    assert ("Never write an attribution header: the daemon adds it" in said) == writes
    assert ("appears under the Compass forge identity" in said) == writes
    assert ("An attribution is a claim unless it is marked verified" in said) == (tool.approval == "read")
    assert ("bounded and what is too long is truncated" in said) == (tool.approval == "read")
    assert ("pushed already, with your own git credential" in said) == (tool.name == "forge_create_pull_request")
    review = tool.name == "forge_submit_review"
    assert ("needs a `body` that is not blank; approve needs none" in said) == review
    assert ("posts at once" in said and "the reviewer" in said and "all three verdicts" in said) == review


def test_a_user_may_change_a_schema_without_changing_the_checks() -> None:
    first, second = (create_forge_tools(ForgeBroker(Transport())) for _ in range(2))
    first[0].parameters["properties"].clear()
    first[0].strict_parameters.clear()
    assert second[0].parameters["properties"]
    assert second[0].strict_parameters


def test_bounds_are_those_of_the_wire() -> None:
    for spec, arm in zip(
        sorted(SPECS, key=lambda each: each.name),
        sorted(ARMS, key=lambda each: str(each.__struct_config__.tag)),
        strict=True,
    ):
        wire = msgspec.json.schema_components([arm])[1][arm.__name__]["properties"]
        tool = tools_over(Transport())[spec.name].parameters["properties"]
        for name, part in wire.items():
            if "maxLength" in part:
                assert tool[name].get("maxLength", 64) == part["maxLength"], name
            if "maxItems" in part:
                assert tool[name]["maxItems"] == part["maxItems"]
    assert arm_name(ARMS[0](repo="r", title="t")) == "create_issue"  # type: ignore[call-arg] # the first is create_issue
