"""What a query costs, by Linear's published rule: 0.1 a property, 1 an object, a connection times its ``first``. Pure.

Source: Linear's "Rate limiting". A connection without ``first`` counts as 50.
"""

from collections.abc import Mapping
from typing import Any, Final

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLObjectType,
    GraphQLSchema,
    InlineFragmentNode,
    IntValueNode,
    OperationDefinitionNode,
    SelectionSetNode,
    VariableNode,
    get_named_type,
)

POINTS_MAX: Final = 10_000
"""The most that one query may cost."""
FIRST_DEFAULT: Final = 50
_PROPERTY: Final = 0.1
_OBJECT: Final = 1.0


def complexity(schema: GraphQLSchema, document: DocumentNode, variables: Mapping[str, Any]) -> float:
    """The points that a valid document with one operation costs under these variables."""
    fragments = {one.name.value: one for one in document.definitions if isinstance(one, FragmentDefinitionNode)}
    operation = next(one for one in document.definitions if isinstance(one, OperationDefinitionNode))
    root = schema.get_root_type(operation.operation)
    if root is None:
        return 0.0
    return _Count(schema, fragments, variables).selection(operation.selection_set, root)


class _Count:
    def __init__(
        self,
        schema: GraphQLSchema,
        fragments: Mapping[str, FragmentDefinitionNode],
        variables: Mapping[str, Any],
    ) -> None:
        self._schema = schema
        self._fragments = fragments
        self._variables = variables

    def selection(self, selected: SelectionSetNode, parent: GraphQLObjectType, times: int = 1) -> float:
        """What a selection costs; the nodes of a connection come ``times`` times."""
        points = 0.0
        for node in selected.selections:
            if isinstance(node, FieldNode):
                points += self._field(node, parent, times)
            elif isinstance(node, FragmentSpreadNode):
                points += self.selection(self._fragments[node.name.value].selection_set, parent, times)
            elif isinstance(node, InlineFragmentNode):
                points += self.selection(node.selection_set, parent, times)
        return points

    def _field(self, node: FieldNode, parent: GraphQLObjectType, times: int) -> float:
        field = parent.fields.get(node.name.value)
        kind = get_named_type(field.type) if field is not None else None
        if node.selection_set is None or not isinstance(kind, GraphQLObjectType):
            return _PROPERTY
        if kind.name.endswith("Connection"):
            return self.selection(node.selection_set, kind, self._first(node))
        each = _OBJECT + self.selection(node.selection_set, kind)
        return each * times if node.name.value in {"nodes", "edges"} else each

    def _first(self, node: FieldNode) -> int:
        given = next((one.value for one in node.arguments or () if one.name.value == "first"), None)
        if isinstance(given, IntValueNode):
            return int(given.value)
        if isinstance(given, VariableNode):
            return int(self._variables.get(given.name.value) or FIRST_DEFAULT)
        return FIRST_DEFAULT
