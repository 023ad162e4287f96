"""Branches and loops, for every format: settled while the model is read, since the engine runs a fixed program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.files import spend
from aneforge.formats.forms import as_number, sliced, truth
from aneforge.formats.importer.language import Scope
from aneforge.formats.records import Block
from aneforge.formats.values import Value, as_tensor, axis_of, known, shaped, without_axes
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

if TYPE_CHECKING:
    from aneforge.formats.importer.importer import Importer


def is_true(value: Any, what: str) -> bool:
    """A truth value that must be known."""
    if not isinstance(value, np.ndarray):
        raise LoadError(f"{what} is only known while the program runs; the engine needs a fixed program")
    return bool(value.reshape(-1)[0])


def spend_round(rounds: int) -> None:
    spend("rounds", rounds, "this loop")


def branch(importer: Importer, name: str, condition: Any, blocks: Sequence[Block], scope: Scope) -> list[Any]:
    """The branch of a known condition; else both, and a choice of what they give."""
    if not isinstance(condition, Tensor):
        taken = 0 if is_true(condition, "the condition") else 1
        return importer.inline(name, blocks[taken], scope) if taken < len(blocks) else []
    if len(blocks) != 2:
        raise LoadError("a branch that may not run has no other branch, so its results would be missing")
    before = {state.name: state.value for state in importer.states.values()}
    results = []
    for block in blocks:
        results.append(importer.inline(name, block, scope))
        if any(state.value is not before[state.name] for state in importer.states.values()):
            raise LoadError("a branch writes a state, but which branch runs must be known before the program runs")
    return [_choose(truth(condition), first, second) for first, second in zip(*results, strict=True)]


def _choose(condition: Tensor, first: Any, second: Any) -> Tensor:
    if not all(isinstance(value, (np.ndarray, Encoded, Tensor)) for value in (first, second)):
        raise LoadError("a branch gives a state or a list; which branch runs must be known before the program runs")
    yes, no = as_number(first), as_number(second)
    if yes.shape != no.shape:
        raise LoadError(f"the branches give {list(yes.shape)} and {list(no.shape)}; the engine needs one shape")
    return af.where(shaped(condition, (1,) * yes.ndim), yes, no)


def while_loop(
    importer: Importer, name: str, test: Block, body: Block, scope: Scope, carried: Sequence[Any], passes: bool = False
) -> list[Any]:
    """A loop whose end follows from known values, written out. ``passes``: the test hands on what the body takes."""
    values, rounds = list(carried), 0
    while True:
        more, *handed = importer.inline(f"{name}/{rounds}", test, scope, values)
        values = handed if passes else values
        if not is_true(more, "when the loop ends"):
            return values
        rounds += 1
        spend_round(rounds)
        values = importer.inline(f"{name}/{rounds - 1}", body, scope, values)


def take(value: Value | None, axis: int, place: int) -> Value:
    """One place along an axis, which falls away."""
    if isinstance(value, Tensor):
        return sliced(value, axis, place, place + 1).reshape(*without_axes(value.shape, (axis,)))
    return np.take(known(value, "the scanned input"), place, axis)


def stack(values: Sequence[Value], axis: int, single_numbers: bool = False) -> Value:
    """The results of all rounds along a new axis; of single numbers, which are lines of one here, one line."""
    if not values:
        raise LoadError("a loop without rounds gives an empty result; a tensor must have at least one element")
    if all(isinstance(value, np.ndarray) for value in values):
        return np.stack([np.asarray(value) for value in values], axis)
    tensors = [as_tensor(value) for value in values]
    if single_numbers:
        return af.concat([tensor.reshape(1) for tensor in tensors], axis=0)
    return af.stack(tensors, axis=axis_of(axis, tensors[0].ndim + 1))
