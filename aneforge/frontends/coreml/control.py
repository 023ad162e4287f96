"""Ops that are about values as such: branches, loops, states and lists, all settled while the model is read."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreml.op import Held, Listed, Op, State, shaped
from aneforge.frontends.coreml.program import Operation, Stored
from aneforge.frontends.forms import as_number, truth
from aneforge.frontends.values import Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

if TYPE_CHECKING:
    from aneforge.frontends.coreml.walker import Walker

__all__ = ["CONTROL", "Scope"]

Scope = MutableMapping[str, Any]
_MOST_ROUNDS = 1024  # of a loop that is written out
_MOST_ENTRIES = 1 << 20  # of a list


def _const(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    value = operation.attributes.get("val")
    if value is None and op.has("val"):
        return [op.held("val")]
    if isinstance(value, Stored):
        return [walker.stored(value)]
    if not isinstance(value, np.ndarray):
        if isinstance(value, (list, tuple)):  # class labels and the like
            return [Listed(tuple(each for each in value if isinstance(each, np.ndarray)))]
        raise LoadError("a constant without a value")
    return [value]


def _cond(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    """The branch of a known condition; else both, and a choice of what they give."""
    if len(operation.blocks) != 2:
        raise LoadError(f"a condition with {len(operation.blocks)} branches")
    condition = op.value("pred")
    if not isinstance(condition, Tensor):
        taken = operation.blocks[0 if bool(np.asarray(condition).reshape(-1)[0]) else 1]
        return walker.block(taken, scope)
    before = {each.name: each.value for each in walker.states.values()}
    branches = []
    for block in operation.blocks:
        branches.append(walker.block(block, scope))
        if any(each.value is not before[each.name] for each in walker.states.values()):
            raise LoadError("a branch writes a state, and which branch runs is only known while the program runs")
    return [_chosen(truth(condition), a, b) for a, b in zip(*branches, strict=True)]


def _chosen(condition: Tensor, a: Held, b: Held) -> Tensor:
    if isinstance(a, (State, Listed)) or isinstance(b, (State, Listed)):
        raise LoadError("the branches of a condition give states or lists")
    first, second = as_number(a), as_number(b)
    if first.shape != second.shape:
        raise LoadError(f"branches that give {list(first.shape)} and {list(second.shape)}")
    return af.where(shaped(condition, (1,) * first.ndim), first, second)


def _while(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    """A loop whose end follows from known values, written out."""
    if len(operation.blocks) != 2:
        raise LoadError(f"a loop with {len(operation.blocks)} blocks")
    test, body = operation.blocks
    held: list[Held] = list(op.given.get("loop_vars", []))
    for _ in range(_MOST_ROUNDS):
        (more,) = walker.block(test, scope, held)
        if isinstance(more, (Tensor, State, Listed)):
            raise LoadError("when the loop ends is only known while the program runs; the engine has no loops")
        if not bool(np.asarray(more).reshape(-1)[0]):
            return held
        held = walker.block(body, scope, held)
    raise LoadError(f"a loop of more than {_MOST_ROUNDS} rounds")


# States.


def _state(op: Op, name: str) -> State:
    found = op.held(name)
    if not isinstance(found, State):
        raise LoadError(f"its argument {name!r} is no state")
    return found


def _read_state(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    return [_state(op, "input").value]


def _written(state: State, value: Value) -> Value:
    if tuple(value.shape) != state.type.static:
        raise LoadError(f"state {state.name!r} is {state.type}, its new value has shape {list(value.shape)}")
    state.value, state.written = value, True
    return value


def _write_state(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    return [_written(_state(op, "input"), op.value("data"))]


def _update_state(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    return [_written(_state(op, "state"), op.value("value"))]


# Lists.


def _list(op: Op) -> Listed:
    found = op.held("ls")
    if not isinstance(found, Listed):
        raise LoadError("its argument 'ls' is no list")
    return found


def _place(op: Op, name: str) -> list[int]:
    value = op.value(name)
    if isinstance(value, Tensor):
        raise LoadError("a place of a list that is only known while the program runs")
    return [int(each) for each in np.asarray(value).reshape(-1)]


def _put(elements: tuple[Value | None, ...], places: list[int], values: list[Value]) -> Listed:
    if any(not 0 <= place < _MOST_ENTRIES for place in places):
        raise LoadError(f"place {max(places)} of a list")
    grown = list(elements) + [None] * max(0, max(places, default=-1) + 1 - len(elements))
    for place, value in zip(places, values, strict=True):
        grown[place] = value
    return Listed(tuple(grown))


def _taken(elements: tuple[Value | None, ...], place: int) -> Value:
    found = elements[place] if 0 <= place < len(elements) else None
    if found is None:
        raise LoadError(f"place {place} of a list of {len(elements)}, where nothing was written")
    return found


def _make_list(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    length = op.whole("init_length", 1)
    if not 0 <= length <= _MOST_ENTRIES:
        raise LoadError(f"a list of {length} entries")
    return [Listed((None,) * length)]


def _list_write(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    return [_put(_list(op).elements, _place(op, "index"), [op.value("value")])]


def _list_read(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    return [_taken(_list(op).elements, _place(op, "index")[0])]


def _list_length(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    return [np.array(len(_list(op).elements), np.int32)]


def _list_gather(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    chosen = [_taken(_list(op).elements, place) for place in _place(op, "indices")]
    if all(isinstance(each, np.ndarray) for each in chosen):
        return [np.stack([np.asarray(each) for each in chosen])]
    return [af.stack([as_tensor(each) for each in chosen], axis=0)]


def _list_scatter(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    places, value = _place(op, "indices"), op.value("value")
    if isinstance(value, Tensor):
        rows: list[Value] = [shaped(value[place], value.shape[1:]) for place in range(len(places))]
    else:
        rows = list(np.asarray(value))
    return [_put(_list(op).elements, places, rows)]


def _classify(walker: Walker, operation: Operation, op: Op, scope: Scope) -> list[Held]:
    """The label of the most probable class is text, which stays with the host: what is read are the probabilities."""
    return [op.value("probabilities") for _ in operation.outputs]


CONTROL: dict[str, Callable[[Walker, Operation, Op, Scope], list[Held]]] = {
    "classify": _classify,
    "cond": _cond,
    "const": _const,
    "coreml_update_state": _update_state,
    "list_gather": _list_gather,
    "list_length": _list_length,
    "list_read": _list_read,
    "list_scatter": _list_scatter,
    "list_write": _list_write,
    "make_list": _make_list,
    "read_state": _read_state,
    "while_loop": _while,
    "write_state": _write_state,
}
