"""The four phases as one list of passes, and how many targets go through it together.

A pass sees only the facts it declares, so targets with equal facts share its run: the walk forks where two targets
first differ, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aneforge.anec.ir import Module
from aneforge.anec.verify import problems, verify
from aneforge.compiler.facts import facts_of
from aneforge.compiler.fuse import FUSION
from aneforge.compiler.legalise import LEGALISATION
from aneforge.compiler.memory import MEMORY
from aneforge.compiler.passes import Pass, PassLog, checked_order, run_pass
from aneforge.compiler.refusal import CompileError
from aneforge.compiler.schedule import SCHEDULE
from aneforge.process import quiet_collector
from aneforge.targets.chip import Target

__all__ = ["PHASES", "PIPELINE", "Branch", "quiet_collector", "run_pipeline"]

PHASES: dict[str, tuple[str, ...]] = {
    "fuse": FUSION,
    "legalise": LEGALISATION,
    "schedule": SCHEDULE,
    "memory": MEMORY,
}
"""The passes of each phase, by the phase's name."""

PIPELINE: tuple[str, ...] = tuple(name for passes in PHASES.values() for name in passes)
"""Every pass of a compile, in order."""

Watcher = Callable[[Pass, PassLog, Module], None]


@dataclass
class Branch:
    """Targets that have had the same code so far."""

    module: Module
    targets: list[Target]
    log: list[PassLog] = field(default_factory=list)
    error: CompileError | None = None


def run_pipeline(start: Callable[[], Module], targets: Sequence[Target], watch: Watcher | None = None) -> list[Branch]:
    """Run all phases on what ``start`` gives; returns one branch for each different outcome, refusals included.

    The finished code is verified. If that fails, or a pass stumbles over what an earlier one left, the phases run
    again on a fresh start with a check behind every pass, so that the error names the pass that broke it.
    """
    passes = checked_order(PIPELINE)
    module = start()
    finished: list[Branch] = []
    open_: list[tuple[int, Branch]] = [(0, Branch(module, list(targets)))]
    while open_:
        place, branch = open_.pop()
        for number in range(place, len(passes)):
            each = passes[number]
            groups = _apart(branch.targets, each)
            if len(groups) > 1:
                rest = groups[1:]
                open_ += [(number, Branch(branch.module.clone(), group, list(branch.log))) for group in reversed(rest)]
                branch.targets = groups[0]
            try:
                entry = run_pass(branch.module, branch.targets[0], each, check=False)
            except CompileError as error:
                branch.error = error
                break
            except Exception:  # raised again below, unless the culprit stands earlier and can be named
                _blame(start(), branch.targets[0], passes[:number])
                raise
            branch.log.append(entry)
            if watch is not None:
                watch(each, entry, branch.module)
        if branch.error is None and problems(branch.module):
            _blame(start(), branch.targets[0], passes)
            verify(branch.module, after=passes[-1].name)
        finished.append(branch)
    return finished


def _blame(module: Module, target: Target, passes: list[Pass]) -> None:
    for each in passes:
        run_pass(module, target, each, check=True)


def _apart(targets: list[Target], each: Pass) -> list[list[Target]]:
    """The targets in groups that the pass cannot tell apart."""
    if len(targets) == 1:
        return [targets]
    groups: dict[tuple[str, ...], list[Target]] = {}
    for target in targets:
        groups.setdefault(facts_of(target, each.reads).signature, []).append(target)
    return list(groups.values())
