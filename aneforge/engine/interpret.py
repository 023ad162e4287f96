"""The meaning of a backend program: every op in float64 on NDCHW arrays, before any engine rounds a number.

The passes are checked against this. A rule takes the op, the arrays of its operands, and by name the stored constants
that the op's attributes name (``kernel_scale``); it returns the array of the result. The rules are in the
``interpret_*`` modules by group. Where the target data name an op but not its meaning (``degamma``, ``dirac``, the
ring buffers), the docstring of its rule says what is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module

import numpy as np

from aneforge.engine.ir import AnecError, Module, Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait

Array = np.ndarray
Rule = Callable[..., Array]


@cache
def _rules() -> dict[str, Rule]:
    names = ("contraction", "movement", "pointwise", "reduction", "spatial", "units")
    groups = [import_module(f"aneforge.engine.interpret_{name}") for name in names]
    return {f"anec.{name}": rule for group in groups for name, rule in group.RULES.items()}


def interpreted_names() -> frozenset[str]:
    """Every op that has a meaning in this package."""
    outside = kinds_with(Trait.PORT) | kinds_with(Trait.INPUT)
    return frozenset((*_rules(), *(f"anec.{kind}" for kind in outside)))


def interpret(module: Module, feeds: Mapping[str, Array] | Sequence[Array]) -> dict[str, Array]:
    """The program's results by name, in float64 (bool for ``i1``), all NDCHW.

    ``feeds`` gives the inputs by name or in the order of the ``live_in`` ops; a state that is not fed by name starts
    at zero. Values are dropped after their last reader, so memory use follows the live values.
    """
    left = {op.uid: sum(op.users.values()) for op in module.ops}
    values: dict[int, Array] = {}
    results: dict[str, Array] = {}
    for op, operands, value in _meanings(module, _feeds_by_name(module, feeds), values):
        if value is None:
            results = dict(zip(op.attrs["names"], operands, strict=True))
        elif left[op.uid]:
            values[op.uid] = value
        for operand in op.operands:
            left[operand.uid] -= 1
            if not left[operand.uid]:
                values.pop(operand.uid, None)
    return results


def node_meanings(module: Module, feeds: Mapping[str, Array] | Sequence[Array]) -> dict[str, Array]:
    """The float64 value of every node of the user's graph that the program has, in the user's shape."""
    values: dict[int, Array] = {}
    for op, _, value in _meanings(module, _feeds_by_name(module, feeds), values):
        if value is not None:
            values[op.uid] = value
    rules, meanings = _rules(), {}
    for name, standing in module.lineage.items():
        if standing.reason is None and standing.shape is not None:
            value = standing.value(lambda op: values[op.uid], lambda move, parts: rules[move.name](move, *parts))
            meanings[name] = (value.transpose(0, 2, 1, 3, 4) if len(standing.shape) == 5 else value).reshape(
                standing.shape
            )
    return meanings


def _meanings(
    module: Module, feeds: Mapping[str, Array], values: Mapping[int, Array]
) -> Iterator[tuple[Op, list[Array], Array | None]]:
    """Every op with its operands and its result; the result is None for the op that names the outputs. The caller
    keeps the values that are still needed."""
    for op in module.ops:
        operands = [values[operand.uid] for operand in op.operands]
        if op.name == "anec.live_out":
            yield op, operands, None
        elif op.is_a(Trait.PORT) or op.is_a(Trait.INPUT):
            yield op, operands, _leaf(module, op, feeds)
        else:
            yield op, operands, _apply(op, operands, named_constants(module, op))


def _feeds_by_name(module: Module, feeds: Mapping[str, Array] | Sequence[Array]) -> dict[str, Array]:
    names = [op.attrs["name"] for op in module.inputs]
    if not isinstance(feeds, Mapping):
        if len(feeds) != len(names):
            raise AnecError(f"the program has {len(names)} inputs, but {len(feeds)} values were passed")
        return dict(zip(names, feeds, strict=True))
    missing = [name for name in names if name not in feeds]
    if missing:
        raise AnecError(f"input {', '.join(missing)} has no value; the program takes {', '.join(names)}")
    return dict(feeds)


def _leaf(module: Module, op: Op, feeds: Mapping[str, Array]) -> Array:
    if op.name == "anec.const_in":
        return laid_out(_weight(module, op.attrs["weight"]), op.shape).astype(np.float64)
    value = feeds.get(op.attrs["name"])
    if value is None:
        return np.zeros(op.shape)
    array = np.asarray(value)
    if array.shape != op.shape:
        raise AnecError(f"{op.attrs['name']}: input has shape {list(array.shape)}; expected {list(op.shape)}")
    return _typed(op, array)


def _weight(module: Module, key: str) -> Array:
    weight = module.weights.get(key)
    if weight is None:
        raise AnecError(f"weight {key!r} is missing from the module; use code that carries its weights")
    return weight.array


def named_constants(module: Module, op: Op) -> dict[str, Array]:
    """The stored constants that an op's attributes name, in float64."""
    return {name: _weight(module, op.attrs[name]).astype(np.float64) for name in op.spec.stored if name in op.attrs}


def rule_of(op: Op) -> Rule:
    """The float64 meaning of an op: a function of the op and its operands' arrays."""
    rule = _rules().get(op.name)
    if rule is None:
        raise AnecError(f"{op.name}: the interpreter has no rule for this op")
    return rule


def laid_out(array: Array, shape: tuple[int, ...]) -> Array:
    """A stored constant, which keeps the user's shape, in the NDCHW layout that its op declares.

    The order of elements is the user's; only a rank-5 constant (NCDHW) has depth and channels exchanged.
    """
    if array.ndim == 5 and array.transpose(0, 2, 1, 3, 4).shape == shape:
        return array.transpose(0, 2, 1, 3, 4)
    return array.reshape(shape)


def _apply(op: Op, operands: list[Array], named: Mapping[str, Array]) -> Array:
    rule = rule_of(op)
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(rule(op, *operands, **named))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, AnecError):
            raise
        raise AnecError(f"{op.name} from {', '.join(op.sources) or 'no source'}: {error}") from error
    if result.shape != op.shape:
        raise AnecError(f"{op.name}: gave shape {list(result.shape)}, its type says {list(op.shape)}")
    return _typed(op, result)


def _typed(op: Op, array: Array) -> Array:
    """Comparisons stay bool; every number is float64, whatever the engine would store."""
    if op.type is not None and op.type.dtype == "i1":
        return array.astype(bool, copy=False)
    return array.astype(np.float64, copy=False)
