"""The engine's language in memory: ops that are their own results, in a list, with use lists.

Every op has at most one result, so an op is also the value it gives. Operands are ops; ``users`` holds every op
that reads this one, with how often, in the order in which they came. Constants are in a separate table keyed by
content, and ``const_in`` ops refer to them. Lineage is part of the op: ``sources`` names the user's nodes that it
comes from.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Protocol

from aneforge.engine.lineage import Standing, retire
from aneforge.engine.spec import OPS, STRUCTURAL, OpSpec, kinds_with, spec
from aneforge.engine.tensor_type import AnecError, TensorType
from aneforge.engine.traits import Trait
from aneforge.graph.weights import Weight

_numbers = itertools.count()
_NONE: Mapping[str, Any] = MappingProxyType({})
_kind = attrgetter("kind")
_ENDS = ("anec.live_out", "anec.live_in")
_SPELLINGS: dict[str, tuple[str, str]] = {}


def _spelling(name: str) -> tuple[str, str]:
    """A name and its kind as single objects: passes compare and look up kinds all the time, and equal strings that
    are one object need no comparison."""
    spelling = sys.intern(name), sys.intern(name[5:])
    if name[5:] in OPS or name[5:] in STRUCTURAL:  # a name that somebody's text made up does not stay
        _SPELLINGS[name] = spelling
    return spelling


class Op:
    """One operation and its result.

    ``layer`` and ``slot`` say which engine layer the op belongs to and in which of its slots: fusion labels ops and
    does not merge them, so a fused program still reads and runs op by op. ``labels`` holds what phases 0 to 2 decided
    about the op, and whatever else a text prints beside it (:data:`aneforge.engine.spec.LABELS`) until a plan takes it
    over; no label changes what the op means.
    """

    __slots__ = (
        "attrs",
        "kind",
        "labels",
        "layer",
        "name",
        "operands",
        "slot",
        "sources",
        "stands",
        "type",
        "uid",
        "users",
    )

    def __init__(
        self,
        name: str,
        operands: Iterable[Op] = (),
        result: TensorType | None = None,
        attrs: Mapping[str, Any] | None = None,
        sources: tuple[str, ...] = (),
    ) -> None:
        self.name, self.kind = _SPELLINGS.get(name) or _spelling(name)
        """``kind`` is the name without the dialect: ``convolution``."""
        self.operands = list(operands)
        self.type = result
        self.attrs: Mapping[str, Any] = attrs or _NONE
        """Ops share them, so they are never changed in place: an op that means something else gets others."""
        self.sources = sources
        self.users: dict[Op, int] = {}
        self.layer: int | None = None
        self.slot: str | None = None
        self.labels: Mapping[str, Any] = _NONE
        self.stands: tuple[Standing, ...] = ()
        """The user's nodes that have the result as their value."""
        self.uid = next(_numbers)
        for operand in self.operands:
            users = operand.users
            users[self] = users.get(self, 0) + 1

    @property
    def full_kind(self) -> str:
        """The kind, with the type of a layer that has no backend op of its own: ``unit:TopK``."""
        return f"{self.kind}:{self.attrs['type']}" if self.kind == "unit" else self.kind

    @property
    def spec(self) -> OpSpec:
        return spec(self.name)

    def is_a(self, trait: Trait) -> bool:
        """Whether ops of this kind have a trait."""
        return self.kind in kinds_with(trait)

    def __getitem__(self, name: str) -> Any:
        """An attribute by name: the value that the op has, else its declared default. A flag is True or False."""
        return spec(self.name).attribute(self.attrs, name)

    def mark(self, **labels: Any) -> None:
        """Write labels beside the op. Ops share them like attributes."""
        self.labels = {**self.labels, **labels}

    def unmark(self, names: Iterable[str]) -> dict[str, Any]:
        """Take labels off the op; returns those that it had."""
        taken = {name: self.labels[name] for name in names if name in self.labels}
        if taken:
            self.labels = {name: value for name, value in self.labels.items() if name not in taken}
        return taken

    @property
    def shape(self) -> tuple[int, ...]:
        if self.type is None:
            raise AnecError(f"{self.name}: the op has no result, so it has no shape")
        return self.type.shape

    @property
    def only_user(self) -> Op | None:
        """The one op that reads this one; None where nothing or several read it."""
        return next(iter(self.users)) if len(self.users) == 1 else None

    def set_operand(self, index: int, value: Op) -> None:
        """Read another value at one position."""
        self._let_go(self.operands[index])
        self.operands[index] = value
        value.users[self] = value.users.get(self, 0) + 1

    def read(self, value: Op) -> None:
        """Read one more value."""
        self.operands.append(value)
        value.users[self] = value.users.get(self, 0) + 1

    def replace_with(self, value: Op) -> None:
        """Let every reader of this op read ``value`` instead."""
        if value is self:
            return
        for user, count in self.users.items():
            user.operands = [value if operand is self else operand for operand in user.operands]
            value.users[user] = value.users.get(user, 0) + count
        self.users = {}
        self.hand_over(value)

    def hand_over(self, value: Op) -> None:
        """Record that the user's nodes with this value are now in another value, which is equal."""
        if self.stands:
            for standing in self.stands:
                standing.op = value
            value.stands += self.stands
            self.stands = ()

    def detached(self) -> Op:
        """A copy of the op without operands and readers, to record what it did."""
        return Op(self.name, (), self.type, self.attrs, self.sources)

    def drop(self) -> None:
        """Stop reading operands; the op must have no readers left."""
        if self.users:
            raise AnecError(f"{self.name}: still has {len(self.users)} readers, so it cannot be removed")
        for operand in self.operands:
            self._let_go(operand)
        self.operands = []

    def _let_go(self, operand: Op) -> None:
        count = operand.users[self] - 1
        if count:
            operand.users[self] = count
        else:
            del operand.users[self]

    def __repr__(self) -> str:
        return f"<{self.name} {self.type}>"


class CarriedPlan(Protocol):
    """The compiler's decisions about a module, which the module carries. The language only clones and prints them."""

    def clone(self, module: Module) -> CarriedPlan:
        """The same for a copy of the module."""
        ...

    def labels(self, module: Module) -> Mapping[Op, Mapping[str, Any]]:
        """What is printed beside ops."""
        ...


class Module:
    """The ops of one program, every operand before its reader, and the constants they refer to.

    It names no target: targets whose facts agree share one module. A :class:`~aneforge.compiler.program.Program` has
    its own, and the text writer is told which to print.
    """

    def __init__(self, ops: Iterable[Op] = (), weights: Mapping[str, Weight] | None = None) -> None:
        self.ops = list(ops)
        self.weights: dict[str, Weight] = dict(weights) if weights else {}
        self.lineage: dict[str, Standing] = {}
        """Where the value of each of the user's nodes is."""
        self.lowered_to: dict[str, frozenset[str]] = {}
        """The kinds of ops that each of the user's nodes was lowered to."""
        self.records: list[Any] = []
        """What was rewritten behind the user's nodes."""
        self.route: str | None = None
        """The route that the user asked for; None where each chip takes the one that reaches it."""
        self.rewritten: frozenset[str] = frozenset()
        """The user's nodes that phase 0 has written with other ops."""
        self.losing = "no reader was left"
        """What to report for values that are removed now; set for the pass that runs."""
        self._kinds: tuple[list[Op] | None, int, set[str]] = (None, 0, set())
        self.plan: CarriedPlan | None = None
        """What the phases have decided, as objects (:mod:`aneforge.compiler.plan`); the text shows it as labels."""

    @property
    def kinds(self) -> set[str]:
        """The kinds of ops that occur; collected again when the list of ops or its length has changed."""
        listed, length, kinds = self._kinds
        if listed is not self.ops or length != len(self.ops):
            kinds = set(map(_kind, self.ops))
            self._kinds = self.ops, len(self.ops), kinds
        return kinds

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def inputs(self) -> list[Op]:
        return [op for op in self.ops if op.name == "anec.live_in"]

    @property
    def output(self) -> Op:
        """The op that names the results; a program has exactly one."""
        outputs = [op for op in self.ops if op.name == "anec.live_out"]
        if len(outputs) != 1:
            raise AnecError(f"a program must have one live_out; this one has {len(outputs)}")
        return outputs[0]

    def sweep(self) -> int:
        """Drop ops that nothing reads, each after its readers; returns how many were dropped."""
        unread = [op for op in self.ops if not op.users and op.name not in _ENDS]
        gone: set[Op] = set()
        while unread:
            op = unread.pop()
            if op in gone:
                continue
            gone.add(op)
            retire(op, self.losing)
            operands = op.operands
            op.drop()
            unread += [operand for operand in operands if not operand.users and operand.name not in _ENDS]
        if gone:
            self.ops = [op for op in self.ops if op not in gone]
        return len(gone)

    def clone(self) -> Module:
        """A copy that shares only the constants."""
        copies: dict[int, Op] = {}
        for op in self.ops:
            operands = [copies[operand.uid] for operand in op.operands]
            copy = copies[op.uid] = Op(op.name, operands, op.type, op.attrs, op.sources)
            copy.layer, copy.slot, copy.labels = op.layer, op.slot, op.labels
        clone = Module(copies.values(), self.weights)
        known: dict[int, Standing] = {}
        clone.lineage = {name: standing.copied(copies, known) for name, standing in self.lineage.items()}
        clone.lowered_to, clone.records = self.lowered_to, list(self.records)
        clone.route, clone.rewritten = self.route, self.rewritten
        clone.plan = None if self.plan is None else self.plan.clone(clone)
        return clone

    def __str__(self) -> str:
        from aneforge.engine.text import write

        return write(self)
