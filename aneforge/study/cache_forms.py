"""A model with its caches kept in another way: as states, as inputs and outputs, read only, or shifted.

A write that joins or blends new rows into a cache works the rows out first. Handing those out and letting the host put
them in its own copy gives the same numbers, because attention reads the joined value either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aneforge.errors import ArgumentError, GraphError
from aneforge.graph.graph import Graph
from aneforge.graph.node import remade
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.ops.shape import concat
from aneforge.graph.tensor import Tensor
from aneforge.study.caches import CacheWrite, cache_writes


def with_rows_as_outputs(graph: Graph) -> Graph:
    """The model with its caches as inputs and their new rows as outputs; the host writes them. Names of the outputs
    stay those of the caches' new values."""
    writes = [write for write in cache_writes(graph) if write.form != "rows"]
    missing = [write for write in writes if write.rows is None]
    if missing:
        raise GraphError(
            f"{missing[0].port.name}: how it gets its new rows was not recognised; write it as a slice update, a "
            "shift or a blend with a mask"
        )
    gone = {write.output.uid for write in writes}
    called = {write.rows.uid: str(write.output.name) for write in writes if write.rows is not None}
    copies: dict[int, Tensor] = {}
    for node in graph.nodes:
        if node.uid in gone or node.uid in called or any(operand.uid in copies for operand in node.inputs):
            name = None if node.uid in gone else called.get(node.uid, node.name)
            copies[node.uid] = remade(node, [copies.get(operand.uid, operand) for operand in node.inputs], name)
    outputs = [output for output in graph.outputs if output.uid not in gone]
    outputs += [write.rows for write in writes if write.rows is not None]
    new = {write.output.name for write in writes}
    states = {name: after for name, after in graph.states.items() if after not in new}
    return Graph([copies.get(output.uid, output) for output in outputs], states, graph.route)


def in_one_state(graph: Graph, name: str = "cache") -> tuple[Graph, tuple[str, ...]]:
    """A program with all its states in one, one behind the other along the first axis, and their names in that
    order."""
    by_name = {str(port.name): port for port in graph.inputs}
    by_output = {str(output.name): output for output in graph.outputs}
    names = tuple(graph.states)
    shapes = {by_name[state].shape for state in names}
    if len(names) < 2:
        return graph, names
    if len(shapes) > 1:
        raise GraphError(f"states of {len(shapes)} shapes cannot be one state. Give them one shape.")
    (shape,) = shapes
    whole = graph_input((len(names) * shape[0], *shape[1:]), name=_free(name, {*by_name, *by_output}))
    copies: dict[int, Tensor] = {}
    for number, state in enumerate(names):
        copies[by_name[state].uid] = whole[number * shape[0] : (number + 1) * shape[0]]
    for node in graph.nodes:
        if any(operand.uid in copies for operand in node.inputs):
            operands = [copies.get(operand.uid, operand) for operand in node.inputs]
            copies[node.uid] = remade(node, operands, node.name)
    new = set(graph.states.values())
    parts: Sequence[Tensor] = [copies[by_output[graph.states[state]].uid] for state in names]
    joined = concat(parts, axis=0).named(f"{whole.name}_out")
    others = [copies.get(output.uid, output) for output in graph.outputs if output.name not in new]
    return Graph([*others, joined], {str(whole.name): str(joined.name)}, graph.route), names


def _free(name: str, taken: set[str]) -> str:
    number, candidate = 0, name
    while candidate in taken or f"{candidate}_out" in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def as_states(graph: Graph) -> Graph:
    """The model with every cache that goes in and out as a state."""
    states = {
        str(write.port.name): str(write.output.name)
        for write in cache_writes(graph)
        if write.form not in ("rows", "grow")
    }
    return Graph(graph.outputs, states, graph.route)


def as_ports(graph: Graph) -> Graph:
    """The model with every state as an input and an output."""
    return Graph(graph.outputs, None, graph.route)


def shifted(graph: Graph) -> Graph:
    """The model with every slice update as a shift: the oldest rows fall out, the new ones are joined behind. Masks
    then count places from the oldest token on."""
    writes = {write.output.uid: write for write in cache_writes(graph) if write.form == "slice"}
    copies: dict[int, Tensor] = {}
    for node in graph.nodes:
        write = writes.get(node.uid)
        if write is not None and write.rows is not None:
            rows = copies.get(write.rows.uid, write.rows)
            kept = [slice(None)] * write.axis + [slice(rows.shape[write.axis], None)]
            copies[node.uid] = concat([write.port[tuple(kept)], rows], axis=write.axis)
            copies[node.uid].name = node.name
        elif any(operand.uid in copies for operand in node.inputs):
            copies[node.uid] = remade(node, [copies.get(operand.uid, operand) for operand in node.inputs], node.name)
    return Graph([copies.get(output.uid, output) for output in graph.outputs], graph.states, graph.route)


@dataclass(frozen=True)
class CacheForm:
    """A change of how a model keeps its caches, by name."""

    name: str
    doc: str
    fits: Callable[[Sequence[CacheWrite]], bool]
    build: Callable[[Graph], Graph]


CACHE_FORMS = (
    CacheForm(
        "cache-rows-out",
        "Caches as inputs that are only read, their new rows as outputs: the host writes them.",
        lambda writes: all(write.rows is not None for write in writes) and any(w.form != "rows" for w in writes),
        with_rows_as_outputs,
    ),
    CacheForm(
        "cache-as-ports",
        "States as inputs and outputs.",
        lambda writes: any(write.as_state for write in writes),
        as_ports,
    ),
    CacheForm(
        "cache-as-states",
        "Caches that go in and out as states.",
        lambda writes: any(not write.as_state and write.form not in ("rows", "grow") for write in writes),
        as_states,
    ),
    CacheForm(
        "cache-in-one-state",
        "All caches of a program in one state, one behind the other.",
        lambda writes: sum(write.form not in ("rows", "grow") for write in writes) > 1,
        lambda graph: in_one_state(as_states(graph))[0],
    ),
    CacheForm(
        "cache-shifted",
        "Slice updates as shifts: the oldest rows fall out. Masks count places from the oldest token on.",
        lambda writes: any(write.form == "slice" for write in writes),
        shifted,
    ),
)
"""The forms of caches, which ``aneforge tune --form`` applies."""


def with_cache_form(graph: Graph, name: str) -> Graph:
    """A model with one form of its caches by name."""
    form = next(form for form in CACHE_FORMS if form.name == name)
    if not form.fits(cache_writes(graph)):
        raise ArgumentError("form", f"{name} fits nowhere in the model ({form.doc.rstrip('.')}).")
    changed = form.build(graph)
    changed.file = graph.file
    return changed
