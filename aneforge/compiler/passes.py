"""What a pass is, and how a list of them is run.

A pass is a function over a draft (phase 0) or a module (later phases) with a name, one line that says what it is for,
the facts of a chip it reads, and what it requires and ensures. The order is a plain list; before
anything runs, each requirement is checked against what earlier passes ensure. The log says what each pass did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aneforge.chips.chip import Target
from aneforge.compiler.facts import Facts, facts_of
from aneforge.compiler.legal.bounds import Bound
from aneforge.compiler.legal.table import rewrite as find_rewrite
from aneforge.compiler.record import Record
from aneforge.compiler.refusal import CompileError, Refusal, Refused, RefusedNodes, RefusedOps
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.lineage import retire
from aneforge.engine.verify import verify
from aneforge.errors import AneforgeError, UnknownNameError, nearest
from aneforge.graph.weights import Weight, intern_weight

if TYPE_CHECKING:
    from aneforge.compiler.draft import Draft

Apply = Callable[[Any, Facts], int]
Lazily = Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Pass:
    """One step of the compiler. Passes of phase 0 take a draft, all others a module."""

    name: str
    phase: int
    purpose: str
    requires: frozenset[str]
    ensures: frozenset[str]
    apply: Apply
    rounds: bool = False
    """Whether it works out stored constants anew, which rounds them to fp16 once more."""
    checks: bool = False
    """Whether it only checks: it refuses ops, and changes nothing."""
    loses: str = ""
    """What to tell a user who asks for a value that this pass has removed."""
    declared_reads: Lazily = tuple
    declared_only: Lazily = tuple
    has_work: Callable[[Any, Facts], bool] | None = None
    """Whether it changes the draft on chips with these facts, for passes that rarely do."""

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The facts of a chip that it may read."""
        return tuple(self.declared_reads())

    @cached_property
    def only(self) -> frozenset[str]:
        """The kinds of ops it works on; empty means any. It has nothing to do in a program without them."""
        return frozenset(self.declared_only())

    def is_idle(self, kinds: AbstractSet[str]) -> bool:
        """Whether none of the ops that it works on occurs."""
        return bool(self.only) and self.only.isdisjoint(kinds)


class PassLog(NamedTuple):
    """What one pass did to one module. (A tuple, because a model in many regions has tens of thousands.)"""

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
    reads: Sequence[str] | Lazily = (),
    requires: Sequence[str] = (),
    ensures: Sequence[str] = (),
    rounds: bool = False,
    only: Iterable[str] = (),
    checks: bool = False,
    loses: str = "",
    has_work: Callable[[Any, Facts], bool] | None = None,
) -> Callable[[Apply], Apply]:
    """Register a function over a module as a pass; the first line of its docstring is its purpose. It returns its
    changes. What it reads may be a function, where that comes from tables."""

    declared: Lazily = reads if callable(reads) else partial(tuple, reads)

    def register(apply: Apply) -> Apply:
        PASSES[name] = Pass(
            name,
            phase,
            _purpose(apply),
            frozenset(requires),
            frozenset(ensures),
            apply,
            rounds,
            checks,
            loses,
            declared,
            lambda: only,
            has_work,
        )
        return apply

    return register


def graph_pass(
    name: str,
    reads: Lazily = tuple,
    only: Lazily = tuple,
    ensures: Sequence[str] = (),
    checks: bool = False,
    has_work: Callable[[Any, Facts], bool] | None = None,
) -> Callable[[Apply], Apply]:
    """Register a function over a draft as a pass of phase 0. What it reads and which graph ops it is about come from
    tables, which are looked at when they are first needed."""

    def register(apply: Apply) -> Apply:
        PASSES[name] = Pass(
            name, 0, _purpose(apply), frozenset(), frozenset(ensures), apply, False, checks, "", reads, only, has_work
        )
        return apply

    return register


def _purpose(apply: Apply) -> str:
    return (apply.__doc__ or "").strip().partition("\n")[0]


def checked_order(names: Sequence[str], ensured: Sequence[str] = ()) -> list[Pass]:
    """The passes in this order. Raises an error that names the first pass whose requirement no earlier pass
    ensures."""
    available, order = set(ensured), []
    for name in names:
        step = PASSES.get(name)
        if step is None:
            near = ", ".join(nearest(name, PASSES))
            hint = f"nearest: {near}" if near else "'aneforge opt' lists them"
            raise UnknownNameError(f"{name!r} is not a pass; {hint}")
        missing = step.requires - available
        if missing:
            raise AnecError(f"pass {name!r} requires {', '.join(sorted(missing))}, which no pass before it ensures")
        available |= step.ensures
        order.append(step)
    return order


def run_passes(
    module: Module, target: Target, names: Sequence[str], ensured: Sequence[str] = (), check: bool = True
) -> list[PassLog]:
    """Run passes in place; each leaves valid code behind it.

    Code that was written by hand may be well-typed and still be more than a pass can handle: then the error names the
    pass that failed.
    """
    entries = []
    for step in checked_order(names, ensured):
        try:
            entries.append(run_pass(module, target, step, check))
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, AneforgeError):
                raise
            problem = f"{type(error).__name__}: {error}".rstrip(": ")
            raise AnecError(f"pass {step.name!r} cannot handle this code ({problem})") from error
    return entries


def run_draft(draft: Draft, target: Target, step: Pass) -> PassLog:
    """Run one pass on a draft, whatever its phase."""
    if step.phase:
        return run_pass(draft.code, target, step, check=False)
    before, start = draft.size, time.perf_counter()
    try:
        changes = 0 if step.is_idle(draft.graph.kinds) else step.apply(draft, facts_of(target, step.reads))
    except RefusedNodes as refused:
        raise CompileError(target.name, step.name, refused.refusals) from None
    return PassLog(step.name, step.phase, changes, before, draft.size, time.perf_counter() - start)


def run_pass(module: Module, target: Target, step: Pass, check: bool = True) -> PassLog:
    """Run one pass; a refusal names it, and so does code that it has broken."""
    before = len(module)
    if step.is_idle(module.kinds):
        return PassLog(step.name, step.phase, 0, before, before, 0.0)
    start = time.perf_counter()
    module.losing = step.loses or f"replaced in pass {step.name}"
    try:
        changes = step.apply(module, facts_of(target, step.reads))
    except (Refused, RefusedOps) as error:
        refusals: dict[str, Refusal] = {}
        for refused in (error,) if isinstance(error, Refused) else error.refused:
            refusal = _refusal(module, refused)
            refusals.setdefault(refusal.node, refusal)
        raise CompileError(target.name, step.name, list(refusals.values())) from None
    seconds = time.perf_counter() - start
    if check:
        verify(module, after=step.name)
    return PassLog(step.name, step.phase, changes, before, len(module), seconds)


def _refusal(module: Module, refused: Refused) -> Refusal:
    op = refused.op
    return Refusal(
        node_of(module, op),
        refused.rule,
        refused.reason,
        refused.oversize,
        refused.findings,
        reject=refused.reject,
        sources=op.sources,
        follows=refused.follows,
    )


def node_of(module: Module, op: Op) -> str:
    """The user's node that an op belongs to: of several sources, the one that was lowered to its kind."""
    return next((name for name in op.sources if op.kind in module.lowered_to.get(name, ())), (*op.sources, "")[0])


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

    def record(self, op: Op, rewrite: str, bound: Bound | None = None) -> None:
        """Say that a row of the table of rewrites was applied to the node behind an op."""
        row = find_rewrite(rewrite)
        self.module.records.append(Record(node_of(self.module, op), rewrite, bound or row.bound))

    def drop(self, op: Op) -> None:
        """Remove an op that nothing reads any more at once, so that its operands have one reader less."""
        retire(op, self.module.losing)
        op.drop()

    def finish(self) -> int:
        """Put the new list in place, without ops that nothing reads. A walk that changed nothing keeps the old
        list."""
        if self.changes or self._made:
            self.module.ops = self.ops
            self.module.sweep()
        return self.changes


Pattern = Callable[[Rewriter, Op], "Op | None"]
"""Returns what replaces an op, or None where the op stays as it is."""


def rewrite_by_kind(module: Module, patterns: Mapping[str, Pattern]) -> int:
    """One walk over a module: each op is handed to the pattern of its kind. Returns how many were replaced.

    The list is built anew from the first op that a pattern replaces or emits on; without one it stays as it is.
    """
    walk = Rewriter(module)
    rebuilding, keep = False, walk.ops.append
    for place, op in enumerate(module.ops):
        pattern = patterns.get(op.kind)
        if pattern is None:
            if rebuilding:
                keep(op)
            continue
        value = pattern(walk, op)
        if not rebuilding and (value is not None or walk.ops):
            rebuilding = True
            walk.ops[:0] = module.ops[:place]
        if value is not None:
            walk.replace(op, value)
        elif rebuilding:
            keep(op)
    return walk.finish() if rebuilding else 0


def is_const(op: Op) -> bool:
    return op.name == "anec.const_in"


def merged_sources(*ops: Op) -> tuple[str, ...]:
    """The user's nodes behind several ops, each once, in order."""
    return tuple(dict.fromkeys(source for op in ops for source in op.sources))
