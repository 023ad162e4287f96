"""Values through a whole program, for one chip, and what each op can lose on the way: the one range analysis.

Every command that says whether a node can lose a number asks this walk. Networks repeat themselves, so an op is worked
out once for each form that its rule looks at: kind, attributes, types, weights and what it reads.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from aneforge.engine.ir import Module, Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait
from aneforge.graph.halves import FP16_MAX
from aneforge.numerics.losses import Risk, Step, losses_of
from aneforge.numerics.products import product_form
from aneforge.numerics.ranges import (
    ALL_AT_ONCE,
    EACH_ALONE,
    NOT_KNOWN,
    OPEN,
    STORED,
    Value,
    of_array,
    remembered,
    weight_of,
)
from aneforge.numerics.rules import (
    has_rule,
    is_summed_before_a_table,
    takes_off_its_maximum,
    value_of,
)
from aneforge.sim.engine import Engine

_MOVES = kinds_with(Trait.MOVEMENT)
_POINTWISE = kinds_with(Trait.POINTWISE)
_CONTRACTIONS = kinds_with(Trait.CONTRACTION)
_INPUTS = kinds_with(Trait.INPUT)
_PORTS = kinds_with(Trait.PORT) | _INPUTS
_UNREAD = Value(0.0, 0.0, attained=STORED)


@dataclass(frozen=True)
class Walk:
    """A program's values, by op, and what can be lost in it, in its order."""

    engine: Engine
    module: Module
    values: Mapping[Op, Value]
    risks: tuple[Risk, ...] = ()

    @cached_property
    def layers_of(self) -> Mapping[str, Sequence[Op]]:
        """The ops with a layer that end a node, by its name."""
        by_node: dict[str, list[Op]] = {}
        for op in self.module.ops:
            if op.sources and op.layer is not None:
                by_node.setdefault(op.sources[-1], []).append(op)
        return by_node


def walk(
    engine: Engine,
    module: Module,
    known: Mapping[str, Value],
    vague: frozenset[str] = frozenset(),
    common: frozenset[Op] = frozenset(),
    errors: bool = True,
) -> Walk:
    """Every op in order.

    ``known`` are the ranges of inputs, and of nodes where somebody has measured them: there the interval is the
    narrower of the two. ``vague`` are nodes whose steps do not give the node's exact meaning, so that their error is
    unknown. ``common`` are ops that another program computes to the bit: errors are counted from their results on.
    Without ``errors`` only the intervals count: those of repeated blocks are equal where errors pile up.
    """
    steps, values = _Steps(engine, module, errors), _Values(module)
    risks: list[Risk] = []
    measured = _measured(module, known)
    for op in module.ops:
        kind = op.kind
        if kind in _PORTS:
            if kind in _INPUTS:
                value = known.get(op.attrs["name"], OPEN)
                values.add(op, value if errors else value._replace(error=math.inf))
            continue
        read = values.read_by(op)
        value, lost = steps.outcome(op, read, values.freedom(op, read))
        if op in measured:
            value = _within(value, measured[op])
            lost = steps.losses(op, read, value)
        if vague and vague.intersection(op.sources[-1:]):
            value = value._replace(error=math.inf)
        if op in common:
            value = value._replace(error=0.0)
        values.add(op, value)
        if lost and op.sources:
            risks += [replace(risk, node=op.sources[-1]) for risk in lost]
    return Walk(engine, module, values, tuple(risks))


def _measured(module: Module, known: Mapping[str, Value]) -> dict[Op, list[Value]]:
    """What somebody knows of ops that are not inputs."""
    ranges: dict[Op, list[Value]] = {}
    ports = {op.attrs["name"] for op in module.ops if op.kind in _INPUTS}
    for name in known.keys() - ports:
        standing = module.lineage.get(name)
        ops = [] if standing is None else list(standing.ops())
        if standing is None or len(ops) != 1 or ops[0].kind in _PORTS:
            continue
        # A value that was turned or seen in another shape has the numbers of its op, and no others.
        if math.prod(standing.shape or ()) == math.prod(ops[0].shape):
            ranges.setdefault(ops[0], []).append(known[name])
    return ranges


def _within(derived: Value, stated: Iterable[Value]) -> Value:
    """The narrowest of some intervals. A stated range rules out an overflow of fp16, but not a limit below it that the
    chip has of its own, as for the data of a crop."""
    for value in stated:
        low, high = max(derived.low, value.low), min(derived.high, value.high)
        special = derived.special and (value.special or derived.size < FP16_MAX)
        open_low = derived.open_low and low == derived.low
        open_high = derived.open_high and high == derived.high
        derived = derived._replace(
            low=min(low, high), high=max(low, high), special=special, open_low=open_low, open_high=open_high
        )
    return derived


class _Values(dict[Op, Value]):
    """The values of a program's ops. Constants are read when they are first asked for, because models are large."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self._module = module
        self._roots: dict[Op, frozenset[Op]] = {}
        """The inputs that a value rests on, where all its elements may be at their ends at once."""

    def add(self, op: Op, value: Value) -> None:
        self[op] = value
        if value.attained == ALL_AT_ONCE:
            roots = [self._roots[operand] for operand in op.operands if operand in self._roots]
            self._roots[op] = roots[0] if len(roots) == 1 else frozenset().union(*roots) or frozenset((op,))

    def freedom(self, op: Op, read: list[Value]) -> int:
        """The most that can be known of the ends of a result, by where its operands come from."""
        if len(read) == 1 and read[0].attained < ALL_AT_ONCE:
            return ALL_AT_ONCE
        computed = [operand for operand in op.operands if operand.kind != "const_in"]
        if len(computed) > 1 and not self._are_apart(op, computed):
            return EACH_ALONE if op.kind in _MOVES else NOT_KNOWN
        spread = (op.kind in _MOVES or op.kind in _POINTWISE) and _repeats(op, computed)
        return EACH_ALONE if spread else ALL_AT_ONCE

    def _are_apart(self, op: Op, computed: list[Op]) -> bool:
        """Whether operands can be at their ends independently of one another: they rest on different inputs, or are
        one and the same and meet with one sign."""
        roots = [self._roots.get(operand) for operand in computed]
        known = [root for root in roots if root is not None]
        if len(known) < len(roots):
            return False
        shared = len(frozenset().union(*known)) < sum(map(len, known))
        return not shared or (op.kind in ("add", "mult") and computed[0] is computed[-1])

    def __missing__(self, op: Op) -> Value:
        weight = weight_of(self._module, op)
        value = self[op] = remembered(("ends", weight.key), lambda: of_array(weight.array))
        return value

    def read_by(self, op: Op) -> list[Value]:
        """What an op reads. Behind a loss a product is lost whatever its stored kernel is, so that is not read."""
        if op.kind in _CONTRACTIONS and self[op.operands[0]].special:
            return [_UNREAD if operand.kind == "const_in" else self[operand] for operand in op.operands]
        return [self[operand] for operand in op.operands]


class _Steps:
    """The ops of one program on one chip, each form worked out once."""

    def __init__(self, engine: Engine, module: Module, errors: bool = True) -> None:
        self._engine, self._module, self._errors = engine, module, errors
        self._known: dict[Hashable, tuple[Value, tuple[Risk, ...]]] = {}

    def outcome(self, op: Op, read: list[Value], freedom: int) -> tuple[Value, tuple[Risk, ...]]:
        """What an op gives, and what it can lose; ``freedom`` is the most that its ends can be known to be met."""
        key = (freedom, self._form(op, read))
        known = self._known.get(key)
        if known is None:
            value = value_of(self._engine, self._module, op, read)
            error = value.error if self._errors else math.inf
            value = self._standing(op, read, value)._replace(attained=_attained(op, read, freedom), error=error)
            known = self._known[key] = value, self.losses(op, read, value)
        return known

    def losses(self, op: Op, read: list[Value], value: Value) -> tuple[Risk, ...]:
        return tuple(losses_of(Step(self._engine, self._module, op, read, value)))

    def _form(self, op: Op, read: list[Value]) -> Hashable:
        """All that the rule of an op looks at."""
        kind, attrs = op.kind, op.attrs
        if kind in _MOVES:
            return kind, op.labels.get("storage"), attrs.get("background_value"), *read
        if kind in _POINTWISE:
            beside = _BESIDE.get(kind)
            return kind, beside is not None and beside(op), *attrs.items(), *read
        types = [operand.type for operand in op.operands]
        beside = product_form(self._engine, self._module, op) if kind in _CONTRACTIONS else None
        return kind, op.type, beside, *types, *attrs.items(), *read

    def _standing(self, op: Op, read: list[Value], value: Value) -> Value:
        """A result with what it rests on: the ends that move with inputs that nobody bounded."""
        low = high = not has_rule(op)
        if any(operand.open_low or operand.open_high for operand in read):
            if value.special:
                low = high = True
            else:
                smaller = value_of(self._engine, self._module, op, [operand.shrunk() for operand in read])
                low, high = smaller.low != value.low, smaller.high != value.high
        return value._replace(open_low=low, open_high=high)


def _attained(op: Op, read: list[Value], freedom: int) -> int:
    """How far the ends of a result are numbers that some input gives, by what is known of the operands.

    Where all elements may be at their ends at once, a sum reaches its bound, and so does every element that is worked
    out alone. Elements of a sum depend on one another: a further sum of them is bounded, and may never get there.
    """
    least = min((value.attained for value in read), default=ALL_AT_ONCE)
    if op.kind in _MOVES or op.kind in _POINTWISE:
        return min(least, freedom)
    return EACH_ALONE if min(least, freedom) >= ALL_AT_ONCE else NOT_KNOWN


def _repeats(op: Op, computed: list[Op]) -> bool:
    """Whether elements of an operand occur more than once in a result, so that they are at one end together."""
    elements = [operand.type.elements for operand in computed if operand.type is not None]
    most = sum(elements) if op.kind in _MOVES else min(elements, default=0)
    return op.type is not None and (op.type.elements > most or op.kind == "gather_nd")


_BESIDE = {
    "sub": takes_off_its_maximum,
    "gain_offset_control": is_summed_before_a_table,
}
"""What of an op's neighbours its rule looks at."""
