"""How a model keeps what earlier tokens left: its caches, found in the graph, and the form of each write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aneforge.compiler.legal.check import is_indexed_write
from aneforge.errors import AneforgeError
from aneforge.graph.forms import number_of
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

LAYOUTS = {
    "state": "one state for all caches of a program",
    "port": "each cache as an input and an output",
    "rows": "each cache as an input, its new rows as an output",
    "none": "no cache",
}
"""Where the caches of a program lie."""


@dataclass(frozen=True, eq=False)
class CacheWrite:
    """One cache of a model: the input that holds it, and how it gets its new rows."""

    port: Tensor
    output: Tensor
    """Its new value; of a cache that is only read, the new rows."""
    form: str
    """One of :data:`aneforge.chips.cache_writes.FORMS`."""
    rows: Tensor | None
    """The new rows, where they are told apart."""
    axis: int = 0
    """The axis along which tokens lie."""
    begin: int = 0
    """Where the rows go: counted from the front; of a shift, behind the rest."""
    as_state: bool = False
    host: str = ""
    """How the host writes the rows of a cache that is only read: ``append`` (behind those that are in use), or the
    form of the write that the program does for itself."""

    @property
    def kept(self) -> str:
        return "state" if self.as_state else "port"

    def to_json(self) -> dict[str, Any]:
        return {
            "cache": self.port.name, "shape": list(self.port.shape), "output": self.output.name, "form": self.form,
            "kept": self.kept, "axis": self.axis, "begin": self.begin, "host": self.host,
        }  # fmt: skip


def cache_writes(graph: Graph) -> list[CacheWrite]:
    """Every cache of a model, in the order of its inputs."""
    found: dict[int, CacheWrite] = {}
    for port, output in carried(graph):
        as_state = port.name in graph.states
        write = _joined(port, output, as_state) or _blended(port, output, as_state) or _other(port, output, as_state)
        if as_state or write.form not in ("other", "append"):  # an output may just happen to have an input's shape
            found[port.uid] = write
    for write in (*_grown(graph), *_only_read(graph)):
        found.setdefault(write.port.uid, write)
    return [found[port.uid] for port in graph.inputs if port.uid in found]


def carried(graph: Graph) -> list[tuple[Tensor, Tensor]]:
    """Inputs that a caller can hand in again with what an output gave: of one shape, the output worked out from the
    input by moves, sums and choices alone. Those that the graph states come first."""
    by_name = {output.name: output for output in graph.outputs}
    pairs = [(port, by_name[graph.states[port.name]]) for port in graph.inputs if port.name in graph.states]
    paired = {port.uid for port, _ in pairs} | {output.uid for _, output in pairs}
    for output in graph.outputs:
        if output.definition.leaf or output.uid in paired or output.dtype != "fp16":
            continue
        port = next((port for port in _written_ports(output) if port.shape == output.shape), None)
        if port is not None and port.uid not in paired:
            pairs.append((port, output))
            paired.add(port.uid)
    return pairs


_MOST_STEPS = 12
"""Nodes on the way from a cache to its new value: a write is a slice, a join, a blend."""


def _written_ports(output: Tensor) -> list[Tensor]:
    """The inputs from which a value is made without a product in between."""
    ports: list[Tensor] = []
    stack, seen = [output], {output.uid}
    while stack and len(seen) < 4 * _MOST_STEPS:
        node = stack.pop()
        if node.op == "input":
            ports.append(node)
        if _keeps_numbers(node) or (node is output and node.op == "host"):
            for operand in node.inputs:
                if operand.uid not in seen:
                    seen.add(operand.uid)
                    stack.append(operand)
    return ports


def _keeps_numbers(node: Tensor) -> bool:
    kinds = (GraphTrait.MOVEMENT, GraphTrait.ARITHMETIC, GraphTrait.SCALING)
    return any(node.is_a(kind) for kind in kinds) or node.op in ("concat", "select", "scatter", "linear_activation")


def _other(port: Tensor, output: Tensor, as_state: bool) -> CacheWrite:
    written = is_indexed_write(str(output.attrs.get("kind", ""))) or output.op == "scatter"
    return CacheWrite(port, output, "indexed" if written else "other", None, as_state=as_state)


def _joined(port: Tensor, output: Tensor, as_state: bool) -> CacheWrite | None:
    """Parts of the cache joined with new rows: behind all of it, behind one another with the oldest left out, or in
    their places."""
    if output.op != "concat":
        return None
    axis = int(output.attrs["axis"]) % output.ndim
    new = [operand for operand in output.inputs if _slice_of(operand, port, axis) is None]
    if len(new) != 1:
        return None
    rows, place = new[0].shape[axis], 0
    shifts = set()
    begin = 0
    for operand in output.inputs:
        source = _slice_of(operand, port, axis)
        if source is None:
            begin = place
        else:
            shifts.add(source - place)
        place += operand.shape[axis]
    if not shifts:
        return None
    whole = place == port.shape[axis] + rows
    form = "append" if whole else "slice" if shifts == {0} else "shift" if shifts == {rows} else None
    return None if form is None else CacheWrite(port, output, form, new[0], axis, begin, as_state)


def _slice_of(node: Tensor, port: Tensor, axis: int) -> int | None:
    """Where along an axis a value begins that is a part of the cache; None where it is none."""
    if node is port:
        return 0
    if node.op != "slice_by_size" or node.inputs[0] is not port:
        return None
    begin, size = node.attrs["begin"], node.attrs["size"]
    whole = all(size[other] == port.shape[other] and not begin[other] for other in range(port.ndim) if other != axis)
    return int(begin[axis]) if whole else None


def _blended(port: Tensor, output: Tensor, as_state: bool) -> CacheWrite | None:
    """``cache * (1 - mask) + row * mask``, or a choice between the two."""
    if output.op == "select":
        values = [operand for operand in output.inputs[1:] if operand is not port]
        return _blend(port, output, values[0], as_state) if len(values) == 1 else None
    if output.op != "add":
        return None
    for kept, written in (output.inputs, output.inputs[::-1]):
        if kept.op == written.op == "mul" and any(operand is port for operand in kept.inputs):
            row = [operand for operand in written.inputs if _varies_beside(operand, port)]
            if len(row) == 1:
                return _blend(port, output, row[0], as_state)
    return None


def _varies_beside(value: Tensor, port: Tensor) -> bool:
    """Whether a factor is rows of the cache, and not a mask: it has more than one number beside the tokens' axis."""
    return value.ndim == port.ndim and sum(extent > 1 for extent in value.shape) > 1 and number_of(value) is None


def _blend(port: Tensor, output: Tensor, rows: Tensor, as_state: bool) -> CacheWrite | None:
    axes = [axis for axis in range(port.ndim) if rows.ndim == port.ndim and rows.shape[axis] != port.shape[axis]]
    return CacheWrite(port, output, "blend", rows, axes[0], as_state=as_state) if len(axes) == 1 else None


def _grown(graph: Graph) -> Iterator[CacheWrite]:
    """Inputs that are handed out again with new rows behind them: longer in each call."""
    for output in graph.outputs:
        if output.op == "concat" and len(output.inputs) == 2 and output.inputs[0].op == "input":
            write = _joined(output.inputs[0], output, False)
            if write is not None and write.form == "append":
                yield replace(write, form="grow")


def _only_read(graph: Graph) -> Iterator[CacheWrite]:
    """Inputs that are joined or blended with rows which the model also gives to the caller."""
    handed_out = {_behind_views(output).uid: output for output in graph.outputs}
    for node in graph.nodes:
        if node.op not in ("concat", "add", "select"):
            continue
        near = (*node.inputs, *(value for operand in node.inputs for value in operand.inputs))
        for port in {value.uid: value for value in near if value.op == "input" and value.dtype == "fp16"}.values():
            write = _joined(port, node, False) or _blended(port, node, False)
            output = None if write is None or write.rows is None else handed_out.get(_behind_views(write.rows).uid)
            if write is not None and output is not None and output.shape != port.shape:
                yield replace(write, output=output, form="rows", host=write.form)


def _behind_views(node: Tensor) -> Tensor:
    """What a value is before moves and a product with one, by which exporters give an output a name."""
    while node.inputs and (node.is_a(GraphTrait.VIEW) or (node.op == "mul" and _times_one(node))):
        node = node.inputs[0]
    return node


def _times_one(node: Tensor) -> bool:
    return number_of(node.inputs[1]) == 1.0


def written_rows(
    cache: np.ndarray, rows: np.ndarray, axis: int, place: int, shift: str = "", name: str = "cache"
) -> np.ndarray:
    """A cache with new rows, as the host writes them: at a place, or by a ``shift`` with the oldest left out, where
    the new ones are ``behind`` or in ``front``."""
    count = rows.shape[axis]
    new = np.asarray(rows, cache.dtype)
    if shift:
        front = shift == "front"
        kept = range(cache.shape[axis] - count) if front else range(count, cache.shape[axis])
        left = np.take(cache, kept, axis=axis)
        return np.concatenate([new, left] if front else [left, new], axis=axis)
    if place + count > cache.shape[axis]:
        raise AneforgeError(
            f"{name}: a cache of {cache.shape[axis]:,} places is full at token {place + count:,}. Use a "
            "model for a longer context, or begin again with empty caches."
        )
    written = cache.copy()
    written[tuple([slice(None)] * axis + [slice(place, place + count)])] = new
    return written
