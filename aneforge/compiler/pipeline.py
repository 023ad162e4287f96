"""All phases as one list of passes, and how several targets go through them together.

A pass sees only the facts it declares, so targets with equal facts share its run: the walk forks where two targets
first differ. A pass that only checks never forks: it separates the targets that it refuses from the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter

from aneforge.chips.chip import Target, compiler_target
from aneforge.compiler.draft import Draft
from aneforge.compiler.facts import facts_of
from aneforge.compiler.fuse import FUSION
from aneforge.compiler.legal.passes import LEGALITY
from aneforge.compiler.legalise import LEGALISATION
from aneforge.compiler.memory import MEMORY
from aneforge.compiler.passes import PASSES, Pass, PassLog, checked_order, run_draft
from aneforge.compiler.refusal import CompileError, Refusal
from aneforge.compiler.schedule import SCHEDULE
from aneforge.engine.ir import Module
from aneforge.engine.verify import problems, verify

PHASES: dict[str, tuple[str, ...]] = {
    "legal": LEGALITY,
    "fuse": FUSION,
    "legalise": LEGALISATION,
    "schedule": SCHEDULE,
    "memory": MEMORY,
}
"""The passes of each phase, by the phase's name; their place is the phase's number."""

CODE_PASSES: tuple[str, ...] = tuple(name for phase, passes in PHASES.items() if phase != "legal" for name in passes)
"""The passes over backend code, in order: what can run on code in text form."""

PIPELINE: tuple[str, ...] = tuple(name for passes in PHASES.values() for name in passes)
"""Every pass of a compile, in order."""

OVERLAP: tuple[str, ...] = ("discover-chains", "discover-co-issue")
"""The passes that let layers overlap. Without them a program gives the same numbers, one layer after another."""

Watcher = Callable[[Pass, PassLog, Module], None]
"""Called behind every pass once there is backend code."""


@dataclass
class Branch:
    """Targets whose draft has been the same so far."""

    draft: Draft
    targets: list[Target]
    log: list[PassLog] = field(default_factory=list)
    error: CompileError | None = None
    refusals: dict[str, dict[str, Refusal]] = field(default_factory=dict)
    """What a survey went on without, by target and node. The nodes are the same for all targets of a branch."""
    absorbed: set[str] = field(default_factory=set)
    """Other nodes that were fused with what was refused, and went with it."""
    ended: bool = False
    """Whether a survey found nothing to go on with."""

    def fork(self, targets: list[Target]) -> Branch:
        """Some of the targets with a draft of their own."""
        refusals = {target.name: dict(self.refusals.get(target.name, {})) for target in targets}
        return Branch(self.draft.fork(), targets, list(self.log), None, refusals, set(self.absorbed))


Refused = list[tuple[list[Target], CompileError]]
"""Targets that a pass refuses, in groups with the same reason."""
Answer = Callable[[Branch, Refused], Iterable[tuple[Branch, bool]]]
"""What to do with those targets: branches of them, and whether each goes on with the same pass."""


def stop(branch: Branch, refused: Refused) -> Iterator[tuple[Branch, bool]]:
    """The answer of a compile: no program results."""
    for targets, error in refused:
        yield Branch(branch.draft, targets, branch.log, error), False


def run_pipeline(
    start: Callable[[], Draft],
    targets: Sequence[Target],
    watch: Watcher | None = None,
    until: str | None = None,
    overlap: bool = True,
) -> list[Branch]:
    """Run all phases, or those up to one, on what ``start`` gives; one branch for each outcome, refusals included.
    ``overlap=False`` leaves out the passes of :data:`OVERLAP`.

    The finished code is verified. If that fails, or a pass stumbles over what an earlier one left, the phases run
    again on a fresh start with a check behind every pass, so that the error names the pass that broke it.
    """
    passes = passes_until(until, overlap)
    finished = run_branch(Branch(start(), list(targets)), passes, watch, start=start)
    for branch in finished:
        if branch.error is None and until is None and problems(branch.draft.code):
            _blame(start(), branch.targets[0], passes)
            verify(branch.draft.code, after=passes[-1].name)
    return finished


def run_rest(branch: Branch, after: str) -> list[Branch]:
    """Run the phases behind one on what it left. The finished code is verified."""
    finished = run_branch(branch, passes_until(None)[len(passes_until(after)) :])
    for done in finished:
        verify(done.draft.code, after="the last pass")
    return finished


def run_branch(
    first: Branch,
    passes: Sequence[Pass],
    watch: Watcher | None = None,
    answer: Answer = stop,
    start: Callable[[], Draft] | None = None,
) -> list[Branch]:
    """Run passes on a branch and on those that fork from it; ``start`` gives a fresh draft, on which a pass that
    breaks the code can be looked for."""
    finished: list[Branch] = []
    open_: list[tuple[int, Branch]] = [(0, first)]
    while open_:
        place, branch = open_.pop()
        for number in range(place, len(passes)):
            step = passes[number]
            groups = _indistinguishable_groups(branch, step)
            if not step.checks:
                later = [branch.fork(group) for group in groups[1:]]
                open_ += [(number, later_branch) for later_branch in reversed(later)]
                groups = groups[:1]
            try:
                entry, refused = _run(branch.draft, step, groups)
            except Exception:  # raised again below, unless an earlier pass broke the code and can be named
                if start is not None:
                    _blame(start(), branch.targets[0], passes[:number])
                raise
            for other, goes_on in answer(branch, refused) if refused else ():
                if goes_on:
                    open_.append((number, other))
                else:
                    finished.append(other)
            if entry is None:
                break
            gone = {target.name for targets, _ in refused for target in targets}
            branch.targets = [target for group in groups for target in group if target.name not in gone]
            branch.log.append(entry)
            if watch is not None and branch.draft.module is not None:
                watch(step, entry, branch.draft.module)
        else:
            finished.append(branch)
    return finished


def _run(draft: Draft, step: Pass, groups: list[list[Target]]) -> tuple[PassLog | None, Refused]:
    """Run one pass for targets that it treats alike, or a check for several groups of them: what it did, None if it
    refuses all targets, and which it refuses."""
    entry, refused = None, []
    for group in groups:
        try:
            entry = run_draft(draft, group[0], step)
        except CompileError as error:
            refused.append((group, error))
    return entry, refused


def passes_until(until: str | None, overlap: bool = True) -> list[Pass]:
    """The passes of all phases, or of those up to one, in order."""
    names = _names(until)
    if overlap:
        return checked_order(names)
    left_out = [PASSES[name] for name in OVERLAP]
    ensured = [
        fact for skipped in left_out for fact in skipped.ensures
    ]  # vacuously: nothing is chained, nothing paired
    return checked_order([name for name in names if name not in OVERLAP], ensured)


def _names(until: str | None) -> tuple[str, ...]:
    if until is None:
        return PIPELINE
    phases = list(PHASES)
    return tuple(name for phase in phases[: phases.index(until) + 1] for name in PHASES[phase])


def _blame(draft: Draft, target: Target, passes: Sequence[Pass]) -> None:
    """Run the passes again with a check after each, so that the pass that broke the code is named."""
    for step in passes:
        run_draft(draft, target, step)
        if draft.module is not None:
            verify(draft.module, after=step.name)


def _indistinguishable_groups(branch: Branch, step: Pass) -> list[list[Target]]:
    """The targets in groups that the pass treats alike: their declared facts agree, or it does nothing for them."""
    targets, draft = branch.targets, branch.draft
    if len(targets) == 1 or not step.reads or step.is_idle(draft.module.kinds if draft.module else draft.graph.kinds):
        return [targets]
    groups = [[targets[place] for place in places] for places in _alike(tuple(map(_name, targets)), step.reads)]
    if step.has_work is None or len(groups) == 1:
        return groups
    merged: list[list[Target]] = []
    untouched: list[Target] = []
    for group in groups:
        if step.has_work(draft, facts_of(group[0], step.reads)):
            merged.append(group)
        else:
            untouched += group
    return [*merged, untouched] if untouched else merged


_name = attrgetter("name")


@lru_cache(maxsize=4096)
def _alike(names: tuple[str, ...], reads: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """The places of targets whose declared facts agree, in groups. The same targets meet the same passes in every
    region of a model."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, name in enumerate(names):
        groups.setdefault(facts_of(compiler_target(name), reads).signature, []).append(place)
    return tuple(map(tuple, groups.values()))
