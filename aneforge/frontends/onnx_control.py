# pyright: reportMissingImports=false
"""Blocks of an ONNX file as the nodes they hold: branches of a known condition, loops of known length, functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from aneforge.budgets import spend
from aneforge.frontends import LoadError, forms
from aneforge.frontends.onnx_node import Node, Value
from aneforge.frontends.values import as_tensor, axis_of, known, without_axes
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["CONTROL", "Walker", "function", "names_read"]


class Walker(Protocol):
    """What a block asks of the reader."""

    onnx: Any
    values: dict[str, Value]
    scalars: set[str]
    opsets: dict[str, int]

    def weight(self, tensor: Any) -> np.ndarray: ...
    def node(self, proto: Any, place: int, depth: int = 0) -> None: ...
    def alias(self, source: str, target: str) -> None: ...


Control = Callable[[Walker, Any, Node, Sequence[Value | None], int], None]


def names_read(proto: Any) -> set[str]:
    """Every value a node reads, those that its blocks read from around them included."""
    found = {name for name in proto.input if name}
    for attribute in proto.attribute:
        for block in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            inner: set[str] = set()
            for node in block.node:
                inner |= names_read(node)
            found |= inner | {each.name for each in block.output}
    return found


def _attribute(proto: Any, name: str, default: Any = None) -> Any:
    for each in proto.attribute:
        if each.name == name:
            return each.g if each.HasField("g") else list(each.ints) if each.ints else each.i
    return default


Held = tuple[Value, bool]
"""A value, and whether it is a single number in the file, which is a line of one here."""


def _run(walker: Walker, block: Any, prefix: str, handed: Mapping[str, Held], depth: int) -> Callable[[str], str]:
    """The nodes of a block; names of its own get the prefix. Returns how its names are called outside."""
    own = {name for inner in block.node for name in inner.output if name}
    own |= {each.name for each in block.initializer} | {each.name for each in block.input}

    def outside(name: str) -> str:
        return f"{prefix}/{name}" if name in own else name

    for tensor in block.initializer:
        walker.values[outside(tensor.name)] = walker.weight(tensor)
    for name, (value, single) in handed.items():
        walker.values[outside(name)] = value
        if single:
            walker.scalars.add(outside(name))
    for place, inner in enumerate(block.node):
        copy = walker.onnx.NodeProto()
        copy.CopyFrom(inner)
        copy.name = f"{prefix}/{inner.name or f'{inner.op_type}_{place}'}"
        _rename(copy, outside)
        walker.node(copy, place, depth + 1)
    return outside


def _rename(proto: Any, outside: Callable[[str], str]) -> None:
    """The names of a node, and those that its own blocks read from around them."""
    for field in (proto.input, proto.output):
        field[:] = [outside(name) if name else "" for name in field]
    for attribute in proto.attribute:
        for block in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            inner = {name for node in block.node for name in node.output}
            inner |= {each.name for each in (*block.input, *block.initializer)}
            for node in block.node:
                _rename(node, lambda name, inner=inner: name if name in inner else outside(name))
            for each in block.output:
                each.name = each.name if each.name in inner else outside(each.name)


def _branch(walker: Walker, proto: Any, node: Node, given: Sequence[Value | None], depth: int) -> None:
    """The branch that a known condition takes, in place of the choice."""
    if given[0] is None or isinstance(given[0], Tensor):
        raise LoadError("a choice that depends on data: the engine has no branches")
    wanted = "then_branch" if bool(known(given[0], "the condition").reshape(-1)[0]) else "else_branch"
    block = _attribute(proto, wanted)
    outside = _run(walker, block, node.name, {}, depth)
    for name, result in zip(proto.output, block.output, strict=True):
        walker.alias(outside(str(result.name)), name)


def _loop(walker: Walker, proto: Any, node: Node, given: Sequence[Value | None], depth: int) -> None:
    """A loop of known length, written out round by round."""
    most, condition, *carried = given
    rounds = sys.maxsize if most is None else int(known(most, "the number of rounds").reshape(-1)[0])
    going = condition is None or bool(known(condition, "the condition").reshape(-1)[0])
    block = _attribute(proto, "body")
    state = _held(walker, proto.input[2:], carried)
    lines: list[list[Held]] = [[] for _ in range(len(block.output) - 1 - len(state))]
    round_ = 0
    while going and round_ < rounds:
        spend("rounds", round_ + 1, "this loop")
        ports = [each.name for each in block.input]
        counted: list[Held] = [(np.array(round_, np.int64), False), (np.array(True), False)]
        outside = _run(walker, block, f"{node.name}/{round_}", dict(zip(ports, counted + state, strict=False)), depth)
        found = _results(walker, block, outside)
        going = bool(known(found[0][0], "whether the loop goes on").reshape(-1)[0])
        state = found[1 : 1 + len(state)]
        for line, value in zip(lines, found[1 + len(state) :], strict=True):
            line.append(value)
        round_ += 1
    _give(walker, proto, [*state, *(_stacked(line, 0) for line in lines)])


def _held(walker: Walker, names: Sequence[str], values: Sequence[Value | None]) -> list[Held]:
    return [(each, name in walker.scalars) for name, each in zip(names, values, strict=True) if each is not None]


def _results(walker: Walker, block: Any, outside: Callable[[str], str]) -> list[Held]:
    names = [outside(each.name) for each in block.output]
    return [(walker.values[name], name in walker.scalars) for name in names]


def _give(walker: Walker, proto: Any, values: Sequence[Held]) -> None:
    for name, (value, single) in zip(proto.output, values, strict=False):
        if name:
            walker.values[name] = value
            if single:
                walker.scalars.add(name)


def _scan(walker: Walker, proto: Any, node: Node, given: Sequence[Value | None], depth: int) -> None:
    """A loop over the places along an axis of some inputs, whose results are joined along one."""
    block, scanned = _attribute(proto, "body"), int(_attribute(proto, "num_scan_inputs"))
    if node.opset < 9:
        raise LoadError("a scan of opset 8: convert the model to opset 9 or later")
    if not 1 <= scanned <= len(given):
        raise LoadError(f"{scanned} inputs to scan of {len(given)}")
    state, series = _held(walker, proto.input[:-scanned], given[:-scanned]), list(given[-scanned:])
    axes = _attribute(proto, "scan_input_axes") or [0] * scanned
    back = _attribute(proto, "scan_input_directions") or [0] * scanned
    rank = [0 if each is None else each.ndim for each in series]
    places = [axis_of(int(axis), size) for axis, size in zip(axes, rank, strict=True)]
    results = len(block.output) - len(state)
    lines: list[list[Held]] = [[] for _ in range(results)]
    length = next(each.shape[place] for each, place in zip(series, places, strict=True) if each is not None)
    spend("rounds", length, "this scan")
    for round_ in range(length):
        picked = [
            _picked(each, place, length - 1 - round_ if turned else round_)
            for each, place, turned in zip(series, places, back, strict=True)
        ]
        handed = dict(zip((each.name for each in block.input), [*state, *picked], strict=True))
        outside = _run(walker, block, f"{node.name}/{round_}", handed, depth)
        found = _results(walker, block, outside)
        state = found[: len(state)]
        for line, value in zip(lines, found[len(state) :], strict=True):
            line.append(value)
    out_axes = _attribute(proto, "scan_output_axes") or [0] * results
    turned_back = _attribute(proto, "scan_output_directions") or [0] * results
    joined = [
        _stacked(line[::-1] if turned else line, int(axis))
        for line, axis, turned in zip(lines, out_axes, turned_back, strict=True)
    ]
    _give(walker, proto, [*state, *joined])


def _picked(value: Value | None, axis: int, place: int) -> Held:
    if isinstance(value, Tensor):
        return forms.sliced(value, axis, place, place + 1).reshape(
            *without_axes(value.shape, (axis,))
        ), value.ndim == 1
    return np.take(known(value, "what is scanned"), place, axis), False


def _stacked(line: Sequence[Held], axis: int) -> Held:
    if not line:
        raise LoadError("a loop without rounds gives an empty result")
    if all(isinstance(each, np.ndarray) for each, _ in line):
        return np.stack([np.asarray(each) for each, _ in line], axis), False
    tensors = [as_tensor(each) for each, _ in line]
    if any(single for _, single in line):
        return af.concat([each.reshape(1) for each in tensors], axis=0), False
    return af.stack(tensors, axis=axis_of(axis, tensors[0].ndim + 1)), False


CONTROL: dict[str, Control] = {"If": _branch, "Loop": _loop, "Scan": _scan}


def function(walker: Walker, body: Any, proto: Any, node: Node, depth: int) -> None:
    """The nodes of a function in place of its call: formal names become the caller's, others get its name."""
    names = dict(zip(body.input, proto.input, strict=False))
    names |= dict.fromkeys(body.input[len(proto.input) :], "")
    names |= dict(zip(body.output, proto.output, strict=False))
    handed = {each.name: each for each in (*body.attribute_proto, *proto.attribute)}
    before = dict(walker.opsets)
    walker.opsets.update({"" if each.domain == "ai.onnx" else each.domain: each.version for each in body.opset_import})

    def outside(name: str) -> str:
        return names.get(name, f"{node.name}/{name}")

    for place, inner in enumerate(body.node):
        copy = walker.onnx.NodeProto()
        copy.CopyFrom(inner)
        copy.name = f"{node.name}/{inner.name or f'{inner.op_type}_{place}'}"
        _rename(copy, outside)
        _hand_over(copy, handed)
        walker.node(copy, place, depth + 1)
    walker.opsets.clear()
    walker.opsets.update(before)


def _hand_over(node: Any, attributes: Mapping[str, Any]) -> None:
    """Attributes of a function's node that stand for those of the call; one that the call lacks is left out."""
    kept = []
    for each in node.attribute:
        if not each.ref_attr_name:
            if each.HasField("g"):
                for inner in each.g.node:
                    _hand_over(inner, attributes)
            kept.append(each)
        elif each.ref_attr_name in attributes:
            given = type(each)()
            given.CopyFrom(attributes[each.ref_attr_name])
            given.name = each.name
            kept.append(given)
    del node.attribute[:]
    node.attribute.extend(kept)
