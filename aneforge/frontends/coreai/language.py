"""Core AI's language: its rows over the common ops, and operations that compute nothing themselves: constants,
branches, loops, calls and states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends.coreai.table import COMPARED, KNOWN, MOVED, REFUSED
from aneforge.frontends.importer.control import branch, while_loop
from aneforge.frontends.importer.importer import Importer
from aneforge.frontends.importer.language import CommonLanguage, Control, Scope
from aneforge.frontends.importer.op import Op, State
from aneforge.frontends.records import Function, Operation, StateType, TensorType
from aneforge.frontends.values import Value
from aneforge.graph.graph import Graph


@dataclass(frozen=True)
class Token:
    """The values of states that were written before this point; other states still have their first value. So reads
    and writes need no separate order."""

    written: dict[str, Value] = field(default_factory=dict)


def _constant(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    value = operation.attributes.get("value")
    if not isinstance(value, np.ndarray):
        raise LoadError("the constant has no value")
    return [value]


def _if(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    return branch(importer, operation.label, op.value("operands"), operation.blocks, scope)


def _while(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    test, body = operation.blocks
    return while_loop(importer, operation.label, test, body, scope, op.operands(), passes=True)


def _invoke(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    return importer.call(operation.attributes.get("callee", ""), op.operands(), operation.label)


def _group(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    """Operations that a tool grouped for one processor; here each is read by itself."""
    return importer.inline(operation.label, operation.blocks[0], scope, op.operands())


def _as_token(operand: Any) -> Token:
    if not isinstance(operand, Token):
        raise LoadError("every operand must be a token")
    return operand


def _state(operand: Any) -> State:
    if not isinstance(operand, State):
        raise LoadError("operand 0 must be the handle of a state")
    return operand


def _read(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    state, token = op.operands()
    return [_as_token(token).written.get(_state(state).name, state.value), token]


def _write(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    state, value, token = op.operands()
    if (tuple(value.shape) or (1,)) != tuple(_state(state).value.shape):
        raise LoadError(f"state {state.name!r} is {list(state.value.shape)}, but its new value is {list(value.shape)}")
    return [Token({**_as_token(token).written, state.name: value})]


def _join(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    written: dict[str, Value] = {}
    for operand in op.operands():
        for name, value in _as_token(operand).written.items():
            if name in written and written[name] is not value:
                raise LoadError(
                    f"state {name!r} is written twice in no stated order; make one write depend on the other"
                )
            written[name] = value
    return [Token(written)]


CONTROL: dict[str, Control] = {
    "constant": _constant,
    "create_token": lambda importer, operation, op, scope: [Token()],
    "if": _if,
    "invoke": _invoke,
    "isolated_group": _group,
    "join_token": _join,
    "read_handle": _read,
    "while": _while,
    "write_handle": _write,
}


class _CoreAI(CommonLanguage):
    def is_output(self, importer: Importer, value: Any) -> bool:
        """A token among the results holds the last values of the states."""
        if not isinstance(value, Token):
            return super().is_output(importer, value)
        for name, new_value in value.written.items():
            importer.states[name].value, importer.states[name].written = new_value, True
        return False


def import_function(file: str, functions: Mapping[str, Function], name: str) -> Graph:
    function = functions[name]
    for label, kind in function.inputs:
        wrapped = kind.wrapped if isinstance(kind, StateType) else kind
        if isinstance(wrapped, TensorType) and wrapped.static is None:
            raise LoadError(
                f"{file}: input {label!r} is {kind}; its shape must be fixed. Fix it before you save the asset "
                "(AIProgram.set_static_shape_config)"
            )
    language = _CoreAI(CONTROL, KNOWN, REFUSED, MOVED, COMPARED)
    return Importer(file, language, function, functions=functions).graph()
