"""Operations of Core AI that compute nothing themselves: constants, branches, loops, calls and states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends.importer.control import branch, while_loop
from aneforge.frontends.importer.language import Control, Scope
from aneforge.frontends.importer.op import Op, State
from aneforge.frontends.records import Operation
from aneforge.frontends.values import Value

if TYPE_CHECKING:
    from aneforge.frontends.importer.importer import Importer


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
    return branch(importer, operation.label, op.value("pred"), operation.blocks, scope)


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


def _handle_argument(op: Op) -> State:
    handle = op.operand("handle")
    if not isinstance(handle, State):
        raise LoadError("operand 0 must be the handle of a state")
    return handle


def _read(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    handle, token = _handle_argument(op), _as_token(op.operand("token"))
    return [token.written.get(handle.name, handle.value), token]


def _write(importer: Importer, operation: Operation, op: Op, scope: Scope) -> list[Any]:
    handle, value, token = _handle_argument(op), op.value("value"), _as_token(op.operand("token"))
    if (tuple(value.shape) or (1,)) != tuple(handle.value.shape):
        raise LoadError(
            f"state {handle.name!r} is {list(handle.value.shape)}, but its new value is {list(value.shape)}"
        )
    return [Token({**token.written, handle.name: value})]


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
