"""The documents that Linear is asked: constants, valid, and cheap enough."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
from graphql import GraphQLSchema, build_schema, parse, validate

from compass_forged.emulator.linear_app import linear_schema
from compass_forged.emulator.linear_complexity import POINTS_MAX, complexity
from compass_forged.providers import linear_documents as documents
from compass_forged.providers.linear_documents import DEAREST_POINTS, DOCUMENTS, LABELS_MAX, LIST_PAGE_MAX, Document

CONTRACT = Path(__file__).parents[3] / "shared" / "contracts" / "linear-subset.graphql"
MOST = {"Labels": {"first": LABELS_MAX}, "Issues": {"first": LIST_PAGE_MAX}}
"""The variables under which a document costs most."""

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)


@pytest.fixture(scope="session")
def contract() -> GraphQLSchema:
    """Linear's own schema, as far as it was published to us."""
    if not CONTRACT.exists():
        pytest.skip("Linear's schema stands beside the checkout only")
    return build_schema(CONTRACT.read_text(encoding="utf-8"))


@each_document
def test_a_document_is_valid_against_linears_schema(document: Document, contract: GraphQLSchema) -> None:
    assert validate(contract, parse(document.text)) == []


@each_document
def test_a_document_is_valid_against_the_schema_of_the_bundled_forge(document: Document) -> None:
    assert validate(linear_schema(), parse(document.text)) == []


@each_document
def test_a_document_has_one_operation_of_its_name_and_one_root(document: Document) -> None:
    tree = parse(document.text).to_dict()
    (operation,) = [one for one in tree["definitions"] if one["kind"] == "operation_definition"]
    (root,) = operation["selection_set"]["selections"]
    assert operation["name"]["value"] == document.name
    assert root["name"]["value"] == document.root


@each_document
def test_a_document_costs_less_than_linear_allows_and_than_the_budget_takes_it_for(document: Document) -> None:
    points = complexity(linear_schema(), parse(document.text), MOST.get(document.name, {}))
    assert points <= DEAREST_POINTS < POINTS_MAX


def test_the_dearest_document_costs_about_what_the_budget_takes_one_for() -> None:
    most = max(complexity(linear_schema(), parse(one.text), MOST.get(one.name, {})) for one in DOCUMENTS)
    assert most > DEAREST_POINTS * 0.9


def connections(node: Any) -> list[dict[str, Any]]:
    """Every field that has a selection of nodes, in a document's tree."""
    if isinstance(node, list):
        return [found for one in node for found in connections(one)]
    if not isinstance(node, dict):
        return []
    inner = (node.get("selection_set") or {}).get("selections") or []
    own = [node] if any((one.get("name") or {}).get("value") in {"nodes", "edges"} for one in inner) else []
    return own + [found for value in node.values() for found in connections(value)]


@each_document
def test_every_connection_says_how_much_it_wants(document: Document) -> None:
    found = connections(parse(document.text).to_dict()["definitions"])
    names = [{argument["name"]["value"] for argument in one["arguments"] or ()} for one in found]
    assert all("first" in one for one in names)
    assert found or document.root in {"viewer", "issueCreate", "commentCreate", "issue"}


def test_no_document_is_left_out() -> None:
    assert {value for value in vars(documents).values() if isinstance(value, Document)} == set(DOCUMENTS)
    assert len({document.name for document in DOCUMENTS}) == len(DOCUMENTS)


def is_constant(node: ast.expr) -> bool:
    """A literal, a constant's name, both joined, or a ``Document`` of such."""
    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.BinOp(op=ast.Add()):
            return is_constant(node.left) and is_constant(node.right)
        case ast.Call(func=ast.Name(id="Document")):
            return all(is_constant(argument) for argument in node.args)
        case ast.Tuple():
            return all(is_constant(item) for item in node.elts)
        case _:
            return False


def test_nothing_is_put_together_when_a_document_is_made() -> None:
    module = ast.parse(inspect.getsource(documents))
    assigned = [node.value for node in module.body if isinstance(node, ast.AnnAssign) and node.value]
    assert len(assigned) > len(DOCUMENTS)
    assert all(is_constant(value) for value in assigned)
    formatted = (ast.JoinedStr, ast.Mod, ast.FunctionDef, ast.AsyncFunctionDef)
    assert not [node for node in ast.walk(module) if isinstance(node, formatted)]


def test_the_bundled_forges_schema_is_linears_cut_down(contract: GraphQLSchema) -> None:
    for name, kind in linear_schema().type_map.items():
        if name.startswith("__") or not hasattr(kind, "fields"):
            continue
        published: Any = contract.type_map[name]
        for field, given in kind.fields.items():
            there = published.fields[field]
            assert str(given.type) == str(there.type), f"{name}.{field}"
            for argument, value in getattr(given, "args", {}).items():
                assert str(value.type) == str(there.args[argument].type), f"{name}.{field}({argument})"
