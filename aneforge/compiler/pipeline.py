"""All phases as one list of passes, and how several targets go through them together.

A pass sees only the facts it declares, so targets with equal facts share its run: the walk forks where two targets
first differ. A pass that only checks never forks: it separates the targets that it refuses from the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter

from aneforge.anec.ir import Module
from aneforge.anec.verify import problems, verify
from aneforge.compiler.draft import Draft
from aneforge.compiler.facts import facts_of
from aneforge.compiler.fuse import FUSION
from aneforge.compiler.legal.passes import LEGALITY
from aneforge.compiler.legalise import LEGALISATION
from aneforge.compiler.memory import MEMORY
from aneforge.compiler.passes import PASSES, Pass, PassLog, checked_order, run_draft
from aneforge.compiler.refusal import CompileError
from aneforge.compiler.schedule import SCHEDULE
from aneforge.targets.chip import Target, compiler_target

__all__ = ["CODE_PASSES", "OVERLAP", "PHASES", "PIPELINE", "Branch", "Watcher", "run_pipeline"]

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
    passes = _passes(until, overlap)
    finished: list[Branch] = []
    open_: list[tuple[int, Branch]] = [(0, Branch(start(), list(targets)))]
    while open_:
        place, branch = open_.pop()
        for number in range(place, len(passes)):
            step = passes[number]
            groups = _indistinguishable_groups(branch, step)
            if len(groups) > 1 and step.checks:
                finished += _refuse_groups(branch, step, groups)
                if not branch.targets:
                    break
            elif len(groups) > 1:
                later = [Branch(branch.draft.fork(), group, list(branch.log)) for group in groups[1:]]
                open_ += [(number, later_branch) for later_branch in reversed(later)]
                branch.targets = groups[0]
            try:
                entry = run_draft(branch.draft, branch.targets[0], step)
            except CompileError as error:
                branch.error = error
                break
            except Exception:  # raised again below, unless an earlier pass broke the code and can be named
                _blame(start(), branch.targets[0], passes[:number])
                raise
            branch.log.append(entry)
            if watch is not None and branch.draft.module is not None:
                watch(step, entry, branch.draft.module)
        if not branch.targets:
            continue
        if branch.error is None and until is None and problems(branch.draft.code):
            _blame(start(), branch.targets[0], passes)
            verify(branch.draft.code, after=passes[-1].name)
        finished.append(branch)
    return finished


def _passes(until: str | None, overlap: bool) -> list[Pass]:
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


def _refuse_groups(branch: Branch, step: Pass, groups: list[list[Target]]) -> list[Branch]:
    """A check of several groups: those that it refuses leave, the others stay together."""
    gone: list[Branch] = []
    branch.targets = []
    for group in groups:
        try:
            run_draft(branch.draft, group[0], step)
            branch.targets += group
        except CompileError as error:
            gone.append(Branch(branch.draft, group, list(branch.log), error))
    return gone


def _blame(draft: Draft, target: Target, passes: list[Pass]) -> None:
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
