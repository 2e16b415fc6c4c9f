"""Draw mutants: every line that can be changed has one ticket, whatever else there is in the room."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import MutationSpec
from parso.tree import NodeOrLeaf
from rooms import Campaign, Room


@dataclass(frozen=True)
class Mutant:
    """One change of one line; its name stays the same while the function around it keeps that line."""

    name: str
    room: str
    file: str
    line: str
    becomes: str
    mutation: MutationSpec

    @property
    def change(self) -> tuple[str, str, str]:
        """The change by its words, as `rooms.equivalent` knows it."""
        return self.file, self.line, self.becomes


def draw(campaign: Campaign, room: Room, root: Path) -> list[Mutant]:
    """Draw the room's mutants, one to a line, by the hash of seed and line."""
    tickets: dict[str, MutationSpec] = {}
    lines: dict[str, str] = {}
    for path in room.files(root):
        source = (root / path).read_text()
        for where, what, mutation in _possible(campaign, path, source):
            line, change = _hash(campaign.seed, where), _hash(campaign.seed, where, what)
            if line not in lines or change < lines[line]:
                lines[line], tickets[line] = change, mutation
    drawn: list[Mutant] = []
    for line in sorted(tickets):
        if len(drawn) == room.mutants:
            break
        mutant = _made(room, root, lines[line], tickets[line])
        drawn += [] if mutant is None else [mutant]
    return drawn


def _possible(campaign: Campaign, path: Path, source: str) -> Iterator[tuple[str, str, MutationSpec]]:
    """Every change that the operators know: where it is, what it is, and how to make it."""
    tree, text = get_ast(source), source.splitlines()
    nodes = list(ast_nodes(tree))
    seen: Counter[tuple[str, str]] = Counter()
    for name in campaign.operators:
        operator = get_operator(name)()
        places = [(node, span) for node in nodes for span in operator.mutation_positions(node)]
        for occurrence, (node, (start, end)) in enumerate(places):
            if _says_nothing(tree.get_leaf_for_position(start, include_prefixes=True)):
                continue
            inside = ASTQuery(node).get_definition_name() or ""
            where = f"{path} {inside} {text[start[0] - 1].strip()}"
            what = f"{name} {start[1] - len(text[start[0] - 1]) + len(text[start[0] - 1].lstrip())}"
            seen[where, what] += 1
            mutation = MutationSpec(path, name, occurrence, start, end, definition_name=inside)
            yield where, f"{what} {seen[where, what]}", mutation


def _says_nothing(leaf: NodeOrLeaf) -> bool:
    """Whether a correct program cannot differ there: a bare star, ``zip(strict=True)``."""
    above = leaf
    while above is not None:
        if above.type in {"import_from", "decorator"}:
            return True
        if above.type == "argument" and above.children[0].get_code().strip() == "strict":
            return True
        above = above.parent
    return leaf.value == "*" and leaf.parent.type in {"parameters", "param", "lambdef"}


def _made(room: Room, root: Path, name: str, mutation: MutationSpec) -> Mutant | None:
    source = (root / mutation.module_path).read_text()
    changed = mutate_code(source, get_operator(mutation.operator_name)(), mutation.occurrence)
    if changed is None or changed == source or not _compiles(changed):
        return None
    before, after = source.splitlines(), changed.splitlines()
    row = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    return Mutant(
        name, room.name, str(mutation.module_path), before[row].strip(), after[row].strip(), mutation
    )


def _compiles(source: str) -> bool:
    """Whether Python reads it at all: what it does not is no mutant, and killed by nobody's merit."""
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _hash(*parts: object) -> str:
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()
