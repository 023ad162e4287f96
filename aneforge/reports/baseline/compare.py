"""A model now against its baseline: every difference that somebody should see, and which of them fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import combinations
from typing import Any

import numpy as np

from aneforge.chips.names import chip_label
from aneforge.reports.baseline.file import CHECKS, Baseline, OutputRecord, ProgramRecord, TargetRecord, VerdictRecord
from aneforge.reports.baseline.observe import STATUS_RANK, Observed
from aneforge.reports.baseline.outcome import BaselineReport, ChangeOutcome, sorted_outcomes

_FIGURES = {
    "segments": "dispatches",
    "task_groups": "task groups",
    "layers": "layers",
    "weight_bytes": "bytes of stored weights",
}


@dataclass(frozen=True)
class Limits:
    """How much may change before it fails."""

    tolerance: float = 5.0
    """Per cent by which an estimate may move."""
    max_us: Mapping[str, float] = field(default_factory=dict)
    """The most microseconds a call may take, by target."""
    strict: bool = False
    """Every change fails, also one for the better."""


def compare(was: Baseline, seen: Observed, limits: Limits | None = None) -> BaselineReport:
    """Everything that is other than recorded. Only targets and checks that both sides have are compared."""
    limits, now = limits or Limits(), seen.baseline
    both = [name for name in now.targets if name in was.targets]
    checks = [check for check in CHECKS if check in was.checks and check in now.checks]
    outcomes = list(_about_the_baseline(was, now))
    unchecked = {(name, check): _why_unchecked(was, check) for name in both for check in CHECKS if check not in checks}
    unchecked |= {(name, check): "not in the baseline" for name in now.targets if name not in both for check in CHECKS}
    if "program" in checks:
        outcomes += _sharing(was, now, both)
    if "numerics" in checks:
        outcomes += _inputs(was, now)
    for name in both:
        before, after = was.targets[name], now.targets[name]
        outcomes += _verdict(name, before, after, seen, edited=was.model.graph != now.model.graph)
        if "program" in checks and before.program and after.program:
            outcomes += _program(name, before.program, after.program)
        if "numerics" in checks:
            outcomes += _numerics(name, before, after, seen, was.against)
        if "estimate" in checks and before.estimate and after.estimate:
            outcomes += _estimate(name, before.estimate.us, after.estimate.us, limits.tolerance)
        if not (before.verdict.runs and after.verdict.runs):
            why = "there was no program" if after.verdict.runs else "there is no program"
            unchecked |= {(name, check): why for check in checks if check != "verdict"}
    outcomes += over_budget(now, limits.max_us)
    if limits.strict:
        outcomes = [outcome.strictly() for outcome in outcomes]
    placed = [_placed(outcome, seen) for outcome in outcomes]
    return BaselineReport(now.model.name, tuple(now.targets), sorted_outcomes(placed), unchecked)


def over_budget(now: Baseline, max_us: Mapping[str, float]) -> list[ChangeOutcome]:
    """Estimates beyond what was allowed, whatever a baseline says."""
    outcomes = []
    for name, most in max_us.items():
        estimate = now.targets[name].estimate
        if estimate is None:
            message = f"no program for {chip_label(name)}, so none that takes at most {most:g} us"
            outcomes.append(ChangeOutcome("over-budget", name, "us", most, None, message))
        elif estimate.us > most:
            message = f"a call takes {estimate.us:g} us on {chip_label(name)}, {most:g} us are allowed"
            outcomes.append(ChangeOutcome("over-budget", name, "us", most, estimate.us, message))
    return outcomes


def _why_unchecked(was: Baseline, check: str) -> str:
    return "skipped" if check in was.checks else "not in the baseline"


def _placed(outcome: ChangeOutcome, seen: Observed) -> ChangeOutcome:
    """With the user's line, where the outcome is about a node or an output."""
    where = seen.places.get(outcome.node) if outcome.what in ("verdict", "numerics") else None
    return outcome if where is None else ChangeOutcome(**{**vars(outcome), "where": where})


def _about_the_baseline(was: Baseline, now: Baseline) -> Iterator[ChangeOutcome]:
    parts = [part for part in ("graph", "weights") if getattr(was.model, part) != getattr(now.model, part)]
    if parts:
        changed = " and ".join({"graph": "nodes", "weights": "weights"}[part] for part in parts)
        yield ChangeOutcome(
            "model-changed",
            *("", ""),
            {part: getattr(was.model, part) for part in parts},
            {part: getattr(now.model, part) for part in parts},
            f"the model is not the one that the baseline was made from: its {changed} changed",
        )
    if was.aneforge != now.aneforge:
        message = f"the baseline was written by aneforge {was.aneforge}, this is {now.aneforge}"
        yield ChangeOutcome("version-differs", "", "", was.aneforge, now.aneforge, message)
    for name in now.targets:
        if name not in was.targets:
            message = f"{chip_label(name)} is not in the baseline, so nothing is compared for it"
            yield ChangeOutcome("target-not-recorded", name, "", None, "asked for", message)
    left = [name for name in was.targets if name not in now.targets]
    if left:
        message = f"in the baseline and not checked this time: {', '.join(map(chip_label, left))}"
        yield ChangeOutcome("target-not-checked", "", "", left, None, message)
    lacking = [check for check in CHECKS if check not in was.checks]
    if lacking:
        message = f"the baseline has no {', '.join(lacking)}: nothing to compare with"
        yield ChangeOutcome("check-not-recorded", "", "", list(was.checks), list(CHECKS), message)


# Verdicts.


def _verdict(
    name: str, before: TargetRecord, after: TargetRecord, seen: Observed, edited: bool
) -> Iterator[ChangeOutcome]:
    """``edited``: the nodes of the model changed, so that one the baseline does not list may be new."""
    was, now, chip = before.verdict, after.verdict, chip_label(name)
    if was.runs and not now.runs:
        message = f"no program for {chip} any more: {seen.refusals.get(name, 'refused')}"
        yield ChangeOutcome("program-lost", name, _blamed(after), "runs", "no program", message)
    elif now.runs and not was.runs:
        why = f" (it was refused by {was.refused.by}: {was.refused.why})" if was.refused else ""
        yield ChangeOutcome("program-gained", name, "", "no program", "runs", f"{chip} takes the model now{why}")
    if was.runs and now.runs:
        yield from _engine_share(name, was, now)
    for node in dict.fromkeys([*was.nodes, *now.nodes]):
        old, new = was.nodes.get(node, "native"), now.nodes.get(node, "native")
        if old != new:
            old = "native or not there" if edited and node not in was.nodes else old
            yield _node(name, node, old, new, seen)


def _engine_share(name: str, was: VerdictRecord, now: VerdictRecord) -> Iterator[ChangeOutcome]:
    """How much of the model the engine can take, and how much of it the runtime is likely to give it."""
    chip = chip_label(name)
    if was.on_engine != now.on_engine:
        rule = "engine-takes-less" if now.on_engine < was.on_engine else "engine-takes-more"
        message = f"the engine of {chip} takes {now.on_engine:,} ops ({now.engine}), it took {was.on_engine:,}"
        yield ChangeOutcome(rule, name, "on_engine", was.on_engine, now.on_engine, message)
    elif was.likely != now.likely:
        rule = "placed-less" if now.likely < was.likely else "placed-more"
        message = f"{now.likely:,} ops are likely given to the engine of {chip}, there were {was.likely:,}"
        yield ChangeOutcome(rule, name, "likely", was.likely, now.likely, message)


def _blamed(record: TargetRecord) -> str:
    refused = record.verdict.refused
    return refused.nodes[0] if refused and refused.nodes else ""


def _node(name: str, node: str, old: str, new: str, seen: Observed) -> ChangeOutcome:
    chip = chip_label(name)
    if node not in seen.places:
        message = f"{node}, which was {old} on {chip}, is no longer in the model"
        return ChangeOutcome("verdict-better", name, node, old, None, message)
    ranks = [STATUS_RANK.get(status.partition(" ")[0], 0) for status in (old, new)]
    rule = "verdict-other" if ranks[0] == ranks[1] else "verdict-worse" if ranks[1] > ranks[0] else "verdict-better"
    reason = seen.reasons.get((name, node))
    why = f": {reason.message}" if reason and reason.message else ""
    hint = reason.hint if reason and rule != "verdict-better" else ""
    return ChangeOutcome(rule, name, node, old, new, f"{node} was {old} on {chip} and is {new}{why}", hint=hint)


# Programs.


def _program(name: str, before: ProgramRecord, after: ProgramRecord) -> Iterator[ChangeOutcome]:
    for figure in fields(ProgramRecord):
        was, now = getattr(before, figure.name), getattr(after, figure.name)
        if was != now:
            rule = "program-grew" if now > was else "program-shrank"
            message = f"the program for {chip_label(name)} has {now:,} {_FIGURES[figure.name]}, it had {was:,}"
            yield ChangeOutcome(rule, name, figure.name, was, now, message)


def _sharing(was: Baseline, now: Baseline, both: list[str]) -> Iterator[ChangeOutcome]:
    """Pairs of targets that had one program, or have one now; among those that have programs on both sides."""
    kept = [name for name in both if was.targets[name].program and now.targets[name].program]
    old, new = _groups(was, kept), _groups(now, kept)
    if old == new:
        return
    pairs = list(combinations(kept, 2))
    parted = [pair for pair in pairs if _share(old, pair) and not _share(new, pair)]
    shown = parted or [pair for pair in pairs if _share(new, pair) and not _share(old, pair)]
    message = f"{len(new)} distinct programs for {len(kept)} targets, there were {len(old)}: "
    message += f"{_chips(shown)} {'no longer share one' if parted else 'share one now'}"
    rule = "programs-split" if parted else "programs-joined"
    yield ChangeOutcome(
        rule, "", "distinct programs", [list(group) for group in old], [list(group) for group in new], message
    )


def _groups(baseline: Baseline, kept: list[str]) -> list[tuple[str, ...]]:
    """In the order of the targets, whatever order a baseline has."""
    rank = {name: place for place, name in enumerate(kept)}
    groups = [
        tuple(sorted((name for name in group if name in rank), key=rank.__getitem__)) for group in baseline.programs
    ]
    return sorted((group for group in groups if group), key=lambda group: rank[group[0]])


def _share(groups: list[tuple[str, ...]], pair: tuple[str, str]) -> bool:
    return any(pair[0] in group and pair[1] in group for group in groups)


def _chips(pairs: list[tuple[str, str]], most: int = 3) -> str:
    shown = "; ".join(f"{chip_label(one)} and {chip_label(two)}" for one, two in pairs[:most])
    return f"{shown}; and {len(pairs) - most} more pairs" if len(pairs) > most else shown


# Numerics.


def _inputs(was: Baseline, now: Baseline) -> Iterator[ChangeOutcome]:
    if not was.inputs or not now.inputs:
        return  # nothing ran, on one side or the other
    for name in dict.fromkeys([*was.inputs, *now.inputs]):
        old, new = was.inputs.get(name), now.inputs.get(name)
        if old != new:
            states = [f"[{record.shape}]" if record else "absent" for record in (old, new)]
            kind = " with other numbers" if old and new and old.shape == new.shape else ""
            message = f"input {name} was {states[0]} and is {states[1]}{kind}"
            yield ChangeOutcome("input-changed", "", name, old and old.shape, new and new.shape, message)


def _numerics(
    name: str, before: TargetRecord, after: TargetRecord, seen: Observed, against: str | None
) -> Iterator[ChangeOutcome]:
    if not (before.verdict.runs and after.verdict.runs):
        return
    was, now, chip = before.numerics, after.numerics, chip_label(name)
    if was is not None and now is not None:
        yield from _outputs(name, was, now, seen, against)
    elif was is not None:
        message = (
            f"the program for {chip} cannot be simulated any more: {seen.not_run.get(name, 'no reason is known')}"
        )
        yield ChangeOutcome("numerics-lost", name, "", "simulated", "not simulated", message)
    elif now is not None:
        message = f"the program for {chip} can be simulated now"
        yield ChangeOutcome("numerics-gained", name, "", "not simulated", "simulated", message)


def _outputs(
    name: str,
    before: Mapping[str, OutputRecord],
    after: Mapping[str, OutputRecord],
    seen: Observed,
    against: str | None,
) -> Iterator[ChangeOutcome]:
    chip = chip_label(name)
    for output in dict.fromkeys([*before, *after]):
        old, new = before.get(output), after.get(output)
        if old is None or new is None or old.shape != new.shape:
            states = [f"[{record.shape}]" if record else "absent" for record in (old, new)]
            message = f"output {output} was {states[0]} and is {states[1]} on {chip}"
            yield ChangeOutcome("output-changed", name, output, old and old.shape, new and new.shape, message)
            continue
        if old.bits != new.bits:
            message = f"output {output} has other bits on {chip}: {_moved(old, new)}"
            yield ChangeOutcome("bits-changed", name, output, _summary(old), _summary(new), message)
        if old.apart and new.apart and old.apart != new.apart and against == seen.baseline.against:
            yield _apart(name, output, old, new, against or "")


def _apart(name: str, output: str, old: OutputRecord, new: OutputRecord, against: str) -> ChangeOutcome:
    assert old.apart
    assert new.apart
    was, now = ((distance.ulp, distance.elements) for distance in (old.apart, new.apart))
    message = f"output {output}: {chip_label(name)} is up to {now[0]:,} steps of fp16 from {chip_label(against)}, "
    message += f"in {now[1]:,} of {new.elements:,} elements; it was {was[0]:,} in {was[1]:,}"
    return ChangeOutcome("chips-apart" if now > was else "chips-closer", name, output, list(was), list(now), message)


def _summary(record: OutputRecord) -> dict[str, Any]:
    names = ("bits", "elements", "finite", "max_abs", "mean")
    return {name: getattr(record, name) for name in names}


def _moved(old: OutputRecord, new: OutputRecord) -> str:
    """How far, by the values that the baseline keeps and by its summary."""
    from aneforge.sim.compare import steps_apart

    was, now = (np.frombuffer(bytes.fromhex(record.sample), "<f2").astype(np.float16) for record in (old, new))
    notes = []
    if was.shape == now.shape and was.size:
        moved = was.view(np.uint16) != now.view(np.uint16)
        steps = int(steps_apart(was, now).max())
        notes.append(f"{int(moved.sum())} of {was.size} sampled values moved, by up to {steps:,} steps of fp16")
    for figure, word in (("max_abs", "largest magnitude"), ("mean", "mean")):
        a, b = getattr(old, figure), getattr(new, figure)
        if a != b:
            notes.append(f"{word} {_number(a)}, now {_number(b)}")
    if old.finite != new.finite:
        notes.append(f"{old.elements - old.finite:,} not finite, now {new.elements - new.finite:,}")
    return "; ".join(notes)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


# Estimates.


def _estimate(name: str, was: float, now: float, tolerance: float) -> Iterator[ChangeOutcome]:
    moved = 100.0 * (now - was) / was
    if abs(moved) <= tolerance:
        return
    word = "slower" if moved > 0 else "faster"
    message = f"a call on {chip_label(name)} is estimated to take {now:g} us, it was {was:g} us "
    message += f"({moved:+.1f} %, {tolerance:g} % may pass)"
    yield ChangeOutcome(word, name, "us", was, now, message)
