"""Operations about values as such: branches, loops, calls and states, all settled while the model is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreai_rules.op import Handle, Held, Op, Token
from aneforge.frontends.coreai_rules.records import Operation
from aneforge.frontends.forms import as_number, truth
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

if TYPE_CHECKING:
    from aneforge.frontends.coreai_rules.walker import Walker

__all__ = ["CONTROL"]

_MOST_ROUNDS = 1024  # of a loop that is written out


def _constant(walker: Walker, operation: Operation, op: Op) -> list[Held]:
    if operation.value is None:
        raise LoadError("a constant without a value")
    return [operation.value]


def _get_shape(walker: Walker, operation: Operation, op: Op) -> list[Held]:
    shape = op.types[0].static
    return [np.array(op.value(0).shape if shape is None else shape, np.uint32)]


# Branches, loops, calls.


def _if(walker: Walker, operation: Operation, op: Op) -> list[Held]:
    """The branch of a known condition; else both, and a choice of what they give."""
    condition = op.value(0)
    if not isinstance(condition, Tensor):
        taken = 0 if bool(np.asarray(condition).reshape(-1)[0]) else 1
        return walker.block(operation.regions[taken], []) if taken < len(operation.regions) else []
    branches = [walker.block(region, []) for region in operation.regions]
    if len(branches) != 2:
        raise LoadError("a branch that may not run and has no other")
    return [_chosen(truth(condition), a, b) for a, b in zip(*branches, strict=True)]


def _chosen(condition: Tensor, a: Held, b: Held) -> Tensor:
    if isinstance(a, (Token, Handle)) or isinstance(b, (Token, Handle)):
        raise LoadError("a branch writes a state, and which branch runs is only known while the program runs")
    first, second = as_number(a), as_number(b)
    if first.shape != second.shape:
        raise LoadError(f"branches that give {list(first.shape)} and {list(second.shape)}")
    return af.where(condition.reshape(*(1,) * first.ndim), first, second)


def _while(walker: Walker, operation: Operation, op: Op) -> list[Held]:
    """A loop whose end follows from known values, written out."""
    test, body = operation.regions
    held = list(op.given)
    for _ in range(_MOST_ROUNDS):
        more, *passed = walker.block(test, held)
        if not isinstance(more, np.ndarray):
            raise LoadError("when the loop ends is only known while the program runs; the engine has no loops")
        if not bool(more.reshape(-1)[0]):
            return passed
        held = walker.block(body, passed)
    raise LoadError(f"a loop of more than {_MOST_ROUNDS} rounds")


def _invoke(walker: Walker, operation: Operation, op: Op) -> list[Held]:
    return walker.call(operation.attributes.get("callee", ""), op.given, operation.name)


def _group(walker: Walker, operation: Operation, op: Op) -> list[Held]:
    """Operations that a tool put together for one processor: here they are judged one by one."""
    return walker.block(operation.regions[0], op.given)


# States: a token says what the handles hold, so that reads and writes need no order of their own.


def _token(op: Op, place: int) -> Token:
    found = op.given[place]
    if not isinstance(found, Token):
        raise LoadError(f"operand {place} is no token")
    return found


def _handle(op: Op) -> Handle:
    found = op.given[0]
    if not isinstance(found, Handle):
        raise LoadError("operand 0 is no handle of a state")
    return found


def _read(walker: Walker, operation: Operation, op: Op) -> list[Held]:
    handle, token = _handle(op), _token(op, 1)
    return [token.written.get(handle.name, handle.value), token]


def _write(walker: Walker, operation: Operation, op: Op) -> list[Held]:
    handle, value, token = _handle(op), op.value(1), _token(op, 2)
    if (tuple(value.shape) or (1,)) != handle.value.shape:
        raise LoadError(f"state {handle.name!r} is {list(handle.value.shape)}, its new value {list(value.shape)}")
    return [Token({**token.written, handle.name: value})]


def _join(walker: Walker, operation: Operation, op: Op) -> list[Held]:
    written = {}
    for place in range(len(op.given)):
        for name, value in _token(op, place).written.items():
            if name in written and written[name] is not value:
                raise LoadError(f"state {name!r} is written twice, and nothing says which comes last")
            written[name] = value
    return [Token(written)]


CONTROL: dict[str, Callable[[Walker, Operation, Op], list[Held]]] = {
    "constant": _constant,
    "create_token": lambda walker, operation, op: [Token()],
    "get_shape": _get_shape,
    "if": _if,
    "invoke": _invoke,
    "isolated_group": _group,
    "join_token": _join,
    "read_handle": _read,
    "while": _while,
    "write_handle": _write,
}
