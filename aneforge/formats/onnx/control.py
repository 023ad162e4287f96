"""Control flow of ONNX, settled while the file is read: weights of inner blocks, branches and loops."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.importer.control import branch, is_true, spend_round, stack, take
from aneforge.formats.importer.language import Control, Scope
from aneforge.formats.onnx.node import OnnxNode
from aneforge.formats.records import Block, Operation, Type, ValueType
from aneforge.formats.values import axis_of, known

if TYPE_CHECKING:
    from aneforge.formats.importer.importer import Importer

INITIALIZER = "initializer"
"""The kind of record that stands for a weight of an inner block."""

Results = list[tuple[Any, Type | None]]


def _if(importer: Importer, operation: Operation, op: OnnxNode, scope: Scope) -> list[Any]:
    blocks = [_body(operation, name) for name in ("then_branch", "else_branch")]
    return branch(importer, operation.label, op.inputs[0], blocks, scope)


def _body(operation: Operation, name: str) -> Block:
    block = operation.attributes.get(name)
    if not isinstance(block, Block):
        raise LoadError(f"attribute {name!r} is missing; it holds the nodes to run")
    return block


def _run_round(importer: Importer, name: str, body: Block, scope: Scope, operands: Results) -> Results:
    results = importer.inline(name, body, scope, [value for value, _ in operands], [kind for _, kind in operands])
    return list(zip(results, importer.returned_types or [], strict=True))


def _loop_results(importer: Importer, state: Results, lines: Sequence[Results], axes: Sequence[int]) -> list[Any]:
    """Return the last state, then the joined results of all rounds."""
    joined = [
        stack(
            [value for value, _ in line],
            axis,
            any(isinstance(kind, ValueType) and kind.shape == () for _, kind in line),
        )
        for line, axis in zip(lines, axes, strict=True)
    ]
    importer.returned_types = [kind for _, kind in state] + [None] * len(joined)
    return [value for value, _ in state] + joined


def _loop(importer: Importer, operation: Operation, op: OnnxNode, scope: Scope) -> list[Any]:
    """Unroll a loop of known length."""
    limit, condition, *_ = op.inputs
    rounds = sys.maxsize if limit is None else int(known(limit, "the number of rounds").reshape(-1)[0])
    going = condition is None or is_true(condition, "the condition")
    body = _body(operation, "body")
    state: Results = [(v, k) for v, k in zip(op.inputs[2:], op.types[2:], strict=True) if v is not None]
    lines: list[Results] = [[] for _ in range(len(body.outputs) - 1 - len(state))]
    done = 0
    while going and done < rounds:
        spend_round(done + 1)
        counted: Results = [(np.array(done, np.int64), None), (np.array(True), None)]
        results = _run_round(importer, f"{operation.label}/{done}", body, scope, counted + state)
        going = is_true(results[0][0], "whether the loop goes on")
        state = results[1 : 1 + len(state)]
        for line, result in zip(lines, results[1 + len(state) :], strict=True):
            line.append(result)
        done += 1
    return _loop_results(importer, state, lines, [0] * len(lines))


def _scan(importer: Importer, operation: Operation, op: OnnxNode, scope: Scope) -> list[Any]:
    """Unroll a loop over an axis of some inputs; its results are joined along an axis."""
    if operation.version < 9:
        raise LoadError("opset 8 is not supported for Scan; the model needs opset 9 or later. Convert it")
    body, count = _body(operation, "body"), int(op.attr("num_scan_inputs", 0))
    if not 1 <= count <= len(op.inputs):
        raise LoadError(f"num_scan_inputs is {count}; expected 1 to {len(op.inputs)}, the number of inputs")
    state: Results = list(zip(op.inputs[:-count], op.types[:-count], strict=True))
    series = list(op.inputs[-count:])
    axes = [
        axis_of(int(axis), 0 if value is None else value.ndim)
        for axis, value in zip(op.attr("scan_input_axes") or [0] * count, series, strict=True)
    ]
    backwards = op.attr("scan_input_directions") or [0] * count
    lines: list[Results] = [[] for _ in range(len(body.outputs) - len(state))]
    length = next(value.shape[axis] for value, axis in zip(series, axes, strict=True) if value is not None)
    spend_round(length)
    for done in range(length):
        places = [length - 1 - done if backward else done for backward in backwards]
        parts: Results = [
            (take(value, axis, place), ValueType("fp32", ()) if value is not None and value.ndim == 1 else None)
            for value, axis, place in zip(series, axes, places, strict=True)
        ]
        results = _run_round(importer, f"{operation.label}/{done}", body, scope, state + parts)
        state = results[: len(state)]
        for line, result in zip(lines, results[len(state) :], strict=True):
            line.append(result)
    output_directions = op.attr("scan_output_directions") or [0] * len(lines)
    ordered = [line[::-1] if flipped else line for line, flipped in zip(lines, output_directions, strict=True)]
    return _loop_results(importer, state, ordered, [int(a) for a in op.attr("scan_output_axes") or [0] * len(lines)])


CONTROL: dict[str, Control] = {
    INITIALIZER: lambda importer, operation, op, scope: [importer.weights.array(operation.source)],
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
