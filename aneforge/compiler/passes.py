"""What a pass is, and how a list of them is run.

A pass is a function over a module with a name, one line that says what it is for, the table fields it reads, and
what it requires and ensures. The order is a list that anybody can read; before anything runs, each requirement is
checked against what earlier passes ensure. After every pass the module is verified, and the log says what it did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aneforge.anec.ir import AnecError, Module, Op, TensorType
from aneforge.anec.verify import verify
from aneforge.compiler.facts import Facts, facts_of
from aneforge.compiler.refusal import CompileError, Refused
from aneforge.errors import AneforgeError, UnknownNameError, nearest
from aneforge.graph.weights import Weight, intern_weight
from aneforge.targets.chip import Target

__all__ = ["PASSES", "Pass", "PassLog", "Rewriter", "checked_order", "pass_", "run_pass", "run_passes"]

Apply = Callable[[Module, Facts], int]


@dataclass(frozen=True)
class Pass:
    """One step of the compiler."""

    name: str
    phase: int
    purpose: str
    reads: tuple[str, ...]
    requires: frozenset[str]
    ensures: frozenset[str]
    rounds: bool
    """Whether it works out stored constants anew, which rounds them to fp16 once more."""
    only: frozenset[str]
    """The kinds of ops it does something about; empty for any. Without one of them it has nothing to do."""
    apply: Apply


@dataclass(frozen=True)
class PassLog:
    """What one pass did to one module."""

    name: str
    phase: int
    changes: int
    ops_before: int
    ops_after: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.changes} changes, {self.ops_before} -> {self.ops_after} ops"


PASSES: dict[str, Pass] = {}


def pass_(
    name: str,
    phase: int,
    reads: Sequence[str] = (),
    requires: Sequence[str] = (),
    ensures: Sequence[str] = (),
    rounds: bool = False,
    only: Sequence[str] = (),
) -> Callable[[Apply], Apply]:
    """Register a function as a pass; the first line of its docstring is its purpose. It returns its changes."""

    def register(apply: Apply) -> Apply:
        purpose = (apply.__doc__ or "").strip().partition("\n")[0]
        held = frozenset(requires), frozenset(ensures)
        PASSES[name] = Pass(name, phase, purpose, tuple(reads), *held, rounds, frozenset(only), apply)
        return apply

    return register


def checked_order(names: Sequence[str], given: Sequence[str] = ()) -> list[Pass]:
    """The passes in this order, or an error that names the one whose requirement nothing before it ensures."""
    ready, order = set(given), []
    for name in names:
        found = PASSES.get(name)
        if found is None:
            near = ", ".join(nearest(name, PASSES))
            hint = f"nearest: {near}" if near else "'aneforge opt' lists them"
            raise UnknownNameError(f"no pass {name!r}; {hint}")
        missing = found.requires - ready
        if missing:
            raise AnecError(f"pass {name!r} requires {', '.join(sorted(missing))}, which no pass before it ensures")
        ready |= found.ensures
        order.append(found)
    return order


def run_passes(
    module: Module, target: Target, names: Sequence[str], given: Sequence[str] = (), check: bool = True
) -> list[PassLog]:
    """Run passes in place; each leaves valid code behind it.

    The verifier knows the form of an op and not its shapes, so code that somebody wrote by hand may be sound to it
    and make no sense: then the pass that stumbles is named.
    """
    entries = []
    for each in checked_order(names, given):
        try:
            entries.append(run_pass(module, target, each, check))
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, AneforgeError):
                raise
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            raise AnecError(f"pass {each.name!r} can make no sense of this code ({what})") from error
    return entries


def run_pass(module: Module, target: Target, each: Pass, check: bool = True) -> PassLog:
    """Run one pass; a refusal names it, and so does code that it has broken."""
    before, start = len(module), time.perf_counter()
    idle = bool(each.only) and each.only.isdisjoint(module.kinds)
    try:
        changes = 0 if idle else each.apply(module, facts_of(target, each.reads))
    except Refused as refused:
        sources = refused.op.sources
        raise CompileError(target.name, each.name, refused.reason, sources, refused.reject) from None
    seconds = time.perf_counter() - start
    if check:
        verify(module, after=each.name)
    return PassLog(each.name, each.phase, changes, before, len(module), seconds)


class Rewriter:
    """Rebuild a module's list in one walk: ops are kept, replaced or given new ones before them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.ops: list[Op] = []
        self.changes = 0
        self._made = 0

    def emit(
        self,
        name: str,
        operands: Sequence[Op],
        type_: TensorType,
        attrs: Mapping[str, object] | None = None,
        sources: tuple[str, ...] = (),
    ) -> Op:
        """A new op at the current place."""
        op = Op(name, operands, type_, attrs, sources)
        self.ops.append(op)
        self._made += 1
        return op

    def constant(self, values: object, type_: TensorType, sources: tuple[str, ...] = ()) -> Op:
        """A stored constant; equal contents are stored once."""
        return self.stored(intern_weight(values), type_, sources)

    def stored(self, weight: Weight, type_: TensorType, sources: tuple[str, ...] = ()) -> Op:
        """A constant that exists already, or a recipe for one."""
        self.module.weights[weight.key] = weight
        return self.emit("anec.const_in", (), type_, {"weight": weight.key}, sources)

    def keep(self, op: Op) -> None:
        self.ops.append(op)

    def replace(self, op: Op, value: Op) -> None:
        """Every reader of ``op`` reads ``value``; the op goes."""
        op.replace_with(value)
        op.drop()
        self.changes += 1

    def finish(self) -> int:
        """Put the new list in place, without ops that nothing reads; a walk that did nothing leaves the old one."""
        if self.changes or self._made:
            self.module.ops = self.ops
            self.module.sweep()
        return self.changes


def is_const(op: Op) -> bool:
    return op.name == "anec.const_in"


def merged_sources(*ops: Op) -> tuple[str, ...]:
    """The user's nodes behind several ops, each once, in order."""
    return tuple(dict.fromkeys(source for op in ops for source in op.sources))
