"""MIL, the language of ML programs: its rows over the common ops, and operations that compute nothing themselves:
constants, branches, loops, states and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.coreml.blobs import BlobWeights
from aneforge.formats.coreml.table import KNOWN, REFUSED
from aneforge.formats.forms import stacked
from aneforge.formats.importer.control import branch, while_loop
from aneforge.formats.importer.importer import Importer
from aneforge.formats.importer.language import CommonLanguage, Control, Scope
from aneforge.formats.importer.op import FileOp, FilePort, Listed, LiveState
from aneforge.formats.records import Function, Operation, StoredValue
from aneforge.formats.values import Value, shaped
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor

_MOST_ENTRIES = 1 << 20  # of a list


def _const(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    value = operation.attributes.get("val")
    if value is None and op.has("val"):
        return [op.operand("val")]
    if isinstance(value, StoredValue):
        return [importer.stored(value)]
    if isinstance(value, (list, tuple)):  # class labels and the like
        return [Listed(tuple(entry for entry in value if isinstance(entry, np.ndarray)))]
    if not isinstance(value, np.ndarray):
        raise LoadError("the constant has no value")
    return [value]


def _cond(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    if len(operation.blocks) != 2:
        raise LoadError(f"a condition has {len(operation.blocks)} branches; expected 2")
    return branch(importer, operation.label, op.value("pred"), operation.blocks, scope)


def _while(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    if len(operation.blocks) != 2:
        raise LoadError(f"a loop has {len(operation.blocks)} blocks; expected 2")
    test, body = operation.blocks
    return while_loop(importer, operation.label, test, body, scope, op.arguments.get("loop_vars", []))


# States and lists: these need nothing but the operation.


def _state(op: FileOp, name: str) -> LiveState:
    state = op.operand(name)
    if not isinstance(state, LiveState):
        raise LoadError(f"argument {name!r} must be a state")
    return state


def _write_state(state: LiveState, value: Value) -> Value:
    if tuple(value.shape) != state.type.static:
        raise LoadError(f"state {state.name!r} is {state.type}, but its new value has shape {list(value.shape)}")
    state.value, state.written = value, True
    return value


def _entries(op: FileOp) -> tuple[Value | None, ...]:
    listed = op.operand("ls")
    if not isinstance(listed, Listed):
        raise LoadError("argument 'ls' must be a list")
    return listed.elements


def _places(op: FileOp, name: str) -> list[int]:
    value = op.value(name)
    if isinstance(value, Tensor):
        raise LoadError("an index into a list is computed while the program runs; the engine needs a fixed index")
    return [int(place) for place in np.asarray(value).reshape(-1)]


def _make_list(op: FileOp) -> Listed:
    length = op.whole("init_length", 1)
    if not 0 <= length <= _MOST_ENTRIES:
        raise LoadError(f"init_length is {length}; a list has up to {_MOST_ENTRIES:,} entries")
    return Listed((None,) * length)


def _write_entries(op: FileOp, places: list[int], values: list[Value]) -> Listed:
    entries = list(_entries(op))
    if any(not 0 <= place < _MOST_ENTRIES for place in places):
        raise LoadError(f"index {max(places)} is out of range; a list has up to {_MOST_ENTRIES:,} entries")
    entries += [None] * (max(places, default=-1) + 1 - len(entries))
    for place, value in zip(places, values, strict=True):
        entries[place] = value
    return Listed(tuple(entries))


def _read_entries(op: FileOp, name: str) -> list[Value]:
    entries, values = _entries(op), []
    for place in _places(op, name):
        value = entries[place] if 0 <= place < len(entries) else None
        if value is None:
            raise LoadError(
                f"index {place} of a list of {len(entries)} entries was never written; write it before it is read"
            )
        values.append(value)
    return values


def _gather_entries(op: FileOp) -> Value:
    entries = _read_entries(op, "indices")
    if all(isinstance(entry, np.ndarray) for entry in entries):
        return np.stack([np.asarray(entry) for entry in entries])
    return stacked(entries, 0)


def _scatter_entries(op: FileOp) -> Listed:
    places, value = _places(op, "indices"), op.value("value")
    if isinstance(value, Tensor):
        rows: list[Value] = [shaped(value[place], value.shape[1:]) for place in range(len(places))]
    else:
        rows = list(np.asarray(value))
    return _write_entries(op, places, rows)


_OF_OPERATION: dict[str, Callable[[FileOp], Any]] = {
    "coreml_update_state": lambda op: _write_state(_state(op, "state"), op.value("value")),
    "list_gather": _gather_entries,
    "list_length": lambda op: np.array(len(_entries(op)), np.int32),
    "list_read": lambda op: _read_entries(op, "index")[0],
    "list_scatter": _scatter_entries,
    "list_write": lambda op: _write_entries(op, _places(op, "index"), [op.value("value")]),
    "make_list": _make_list,
    "read_state": lambda op: _state(op, "input").value,
    "write_state": lambda op: _write_state(_state(op, "input"), op.value("data")),
}


CONTROL: dict[str, Control] = {
    **{
        name: lambda importer, operation, op, scope, function=function: [function(op)]
        for name, function in _OF_OPERATION.items()
    },
    # The result is the probabilities. The label of the most probable class is text and stays with the host.
    "classify": lambda importer, operation, op, scope: [op.value("probabilities") for _ in operation.outputs],
    "cond": _cond,
    "const": _const,
    "while_loop": _while,
}


class _Mil(CommonLanguage):
    runtime = "coreml"

    def bind(self, importer: Importer, operation: Operation, scope: Scope) -> FileOp:
        """The parts of a compressed weight are attributes; they are bound like arguments."""
        for key, value in operation.attributes.items():
            if (
                key not in ("name", "val")
                and key not in operation.inputs
                and isinstance(value, (np.ndarray, StoredValue))
            ):
                operation.inputs[key] = [value]
        return super().bind(importer, operation, scope)


def import_function(
    file: str,
    function: Function,
    weights: BlobWeights,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    ports: Mapping[str, FilePort],
) -> Graph:
    language = _Mil(CONTROL, KNOWN, REFUSED)
    return Importer(file, language, function, dims=dims, fixed=fixed, ports=ports, weights=weights).graph()
