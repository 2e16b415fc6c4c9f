"""A mutation that cosmic-ray does not have: a statement is gone, as where somebody deleted a check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import parso
from cosmic_ray import plugins
from cosmic_ray.operators.operator import Example, Operator
from parso.tree import NodeOrLeaf

Position = tuple[int, int]


class RemoveStatement(Operator):
    """Write ``pass`` for a call, a ``raise``, or a value kept in an object."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[tuple[Position, Position]]:
        """Return where the one statement of a simple line is."""
        if node.type == "simple_stmt" and _acts(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:  # noqa: ARG002  # one way only
        """Leave a line that does nothing."""
        nothing = parso.parse("pass").children[0]
        nothing.prefix = node.children[0].get_first_leaf().prefix
        node.children[0] = nothing
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """Show what it does."""
        return (
            Example("check(x)\n", "pass\n"),
            Example("raise X\n", "pass\n"),
            Example("a.b = c\n", "pass\n"),
        )


def _acts(statement: NodeOrLeaf) -> bool:
    """Whether something else notices: not a docstring, and not a local name that would be missing."""
    if statement.type == "expr_stmt":
        return statement.children[0].type in {"power", "atom_expr"}
    if statement.type in {"power", "atom_expr"}:
        return bool(statement.children[-1].type == "trailer")
    return bool(statement.type == "raise_stmt")


def register() -> None:
    """Let cosmic-ray find it by its name, ``perseus/RemoveStatement``."""
    plugins.OPERATOR_PROVIDERS["perseus"] = {RemoveStatement.__name__: RemoveStatement}
