"""Which changes would help most on each chip.

Every source of proposals says cheaply how much each can save at most. What can save enough is priced, the largest
first and a bounded number of them, and a chip is told those that help by :data:`LEAST_GAIN` or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from aneforge.advice.changes import (
    aligned_ports,
    ends_outside,
    native_layers_on_host,
    other_forms,
    several_inputs,
    small_regions_on_host,
    stored_weights,
)
from aneforge.advice.proposals import LEAST_GAIN, AboutChange, Figure, Proposal, Workbench
from aneforge.cost.constants import basis_of
from aneforge.process import quiet_collector
from aneforge.study.study import Study
from aneforge.text import grouped, line_width, plural, short, some, wrapped

SOURCES: tuple[Callable[[Workbench], Iterable[Proposal]], ...] = (
    stored_weights,
    other_forms,
    native_layers_on_host,
    small_regions_on_host,
    ends_outside,
    several_inputs,
    aligned_ports,
)
"""Where proposals come from. Equal gains keep this order."""

_MOST_WORKED_OUT, _FEWEST_WORKED_OUT = 12, 4
_ROUNDING = 0.001  # of a call; a smaller difference is none
_NODES = 24_000  # nodes of changed graphs that are compiled in all, about: a large model has fewer changes worked out


@dataclass(frozen=True, kw_only=True)
class PricedChange(AboutChange):
    """One change of a model on one chip, and the whole call after it."""

    before_us: float
    us: float
    """Of one call, or of one input where several go into a call."""
    interval: tuple[float, float]

    @classmethod
    def of(cls, about: AboutChange, before_us: float, after: Figure) -> PricedChange:
        words = {word.name: getattr(about, word.name) for word in fields(AboutChange)}
        return cls(**words, before_us=before_us, us=after.us, interval=after.interval)

    @property
    def saved(self) -> float:
        """The share of the call that it saves."""
        return 1 - self.us / self.before_us

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "saved": self.saved}


@dataclass(frozen=True)
class Advice:
    """The changes that help on one chip, the best first, and how many there were to choose from."""

    changes: tuple[PricedChange, ...]
    weighed: int
    """Changes that apply to the model there."""
    worked_out: int
    """Those of them that were compiled and estimated."""
    left_out: int = 0
    """Those that could save enough and were not worked out, because the model is large. The rest cannot."""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "changes": [change.to_json() for change in self.changes]}


def advise(study: Study, count: int = 3) -> dict[str, Advice]:
    """The ``count`` changes that help most on each chip of a ``study`` that runs something of the model, by the chip's
    name."""
    bench = Workbench(study)
    estimates = bench.estimates
    if not estimates or count < 1:
        return {}
    with quiet_collector():
        proposals = _proposals(bench)
        able = _worth_trying(bench, proposals)
        tried = able[: _how_many(bench)]
        changes: dict[str, dict[str, PricedChange]] = {name: {} for name in estimates}
        worked_out = dict.fromkeys(estimates, 0)
        for proposal in tried:
            for name, figure in bench.price(proposal, _chips_helped(bench, proposal)).items():
                worked_out[name] += 1
                change = PricedChange.of(proposal, estimates[name].us, figure)
                known = changes[name].get(proposal.family)
                if change.saved >= LEAST_GAIN and (known is None or change.us < known.us):
                    changes[name][proposal.family] = change
    advice: dict[str, Advice] = {}
    for name, by_family in changes.items():
        best = _best(by_family.values(), count)
        weighed = sum(name in proposal.most for proposal in proposals)
        left_out = sum(name in _chips_helped(bench, proposal) for proposal in able[len(tried) :])
        advice[name] = Advice(tuple(best), weighed, worked_out[name], left_out)
    return advice


def _best(changes: Iterable[PricedChange], count: int) -> list[PricedChange]:
    """The changes that save most: the best one against each cause before a second one against the same."""
    by_cause = grouped(sorted(changes, key=lambda change: change.us), lambda change: change.cause)
    first = [alike[0] for alike in by_cause.values()]
    others = [change for alike in by_cause.values() for change in alike[1:]]
    ranked = [*sorted(first, key=lambda change: change.us), *sorted(others, key=lambda change: change.us)]
    return sorted(ranked[:count], key=lambda change: change.us)


def _proposals(bench: Workbench) -> list[Proposal]:
    """What all sources propose; the same thing on several chips is one proposal."""
    proposals: dict[tuple[object, ...], Proposal] = {}
    for source in SOURCES:
        for proposal in source(bench):
            proposals.setdefault((proposal.name, proposal.what, proposal.nodes), proposal).most.update(proposal.most)
    return list(proposals.values())


def _worth_trying(bench: Workbench, proposals: Sequence[Proposal]) -> list[Proposal]:
    """What can save enough on some chip, the largest share first."""

    def share(proposal: Proposal) -> float:
        return max((us / bench.estimates[name].us for name, us in proposal.most.items()), default=0.0)

    able = [proposal for proposal in proposals if _chips_helped(bench, proposal)]
    return sorted(able, key=lambda proposal: -share(proposal))


def _chips_helped(bench: Workbench, proposal: Proposal) -> list[str]:
    """The chips on which a proposal can save enough."""
    return [name for name, us in proposal.most.items() if us >= LEAST_GAIN * bench.estimates[name].us]


def _how_many(bench: Workbench) -> int:
    """How many changes are worked out: as many as the size of the model allows."""
    return min(_MOST_WORKED_OUT, max(_FEWEST_WORKED_OUT, _NODES // max(1, len(bench.graph.nodes))))


def likely_cut(study: Study) -> dict[str, PricedChange]:
    """By chip, the model cut as the runtime would likely do it, where that is another cut than by the rules and takes
    another time."""
    bench = Workbench(study)
    counted = {bench.names[node.uid] for node in study.operations.counted}
    moved: dict[str, None] = {}
    after: dict[str, Figure] = {}
    placed = study.with_chips(list(bench.estimates)).partitions("placement") if bench.estimates else {}
    for name, split in placed.items():
        devices = bench.splits[name].device_of
        if not split.runs or split.device_of == devices:
            continue
        figure = Figure.of(split.estimate(study.scope, study.copy_gbs))
        if abs(figure.us / bench.estimates[name].us - 1) >= _ROUNDING:
            after[name] = figure
            elsewhere = (split.names[uid] for uid, device in split.device_of.items() if devices.get(uid) != device)
            moved |= dict.fromkeys(node for node in elsewhere if node in counted)
    label = study.runtime.label
    about = AboutChange(
        name="likely cut",
        kind="cut",
        cause="crossings",
        what=f"cut as {label} would likely do it: {plural(len(moved), 'operation')} on another device than by the "
        "rules",
        nodes=tuple(moved),
        how=f"placed by what was seen of {label}, compiled and estimated",
        numbers="the host computes in float32",
    )
    return {name: PricedChange.of(about, bench.estimates[name].us, figure) for name, figure in after.items()}


# As text.

_CAUSES = {
    "weights": "against reading weights:",
    "calls": "against starting calls:",
    "crossings": "against cuts and changes of device:",
    "layers": "against the time of layers:",
}


def _label(name: str) -> str:
    """The product whose times a name stands for."""
    return basis_of(name).label


def changes_text(advice: Mapping[str, Advice]) -> str:
    """The changes that help by what they work against, each once with the chips that it helps."""
    helping = [(name, change) for name, one in advice.items() for change in one.changes]
    if not helping:
        return wrapped(f"what would help: {_nothing(advice)}")
    lines = ["what would help (the whole call before and after, by estimate):"]
    by_cause = grouped(sorted(helping, key=lambda pair: -pair[1].saved), lambda pair: pair[1].cause)
    for cause, pairs in by_cause.items():
        lines.append(f"  {_CAUSES[cause]}")
        note = ""
        for alike in grouped(pairs, lambda pair: pair[1].name).values():
            before, note = note, f"{alike[0][1].how}; {alike[0][1].numbers}"
            lines += _change_lines(sorted(alike, key=lambda pair: list(advice).index(pair[0])))
            lines += [wrapped(note, "      ")] if note != before else []
    helped = {name for name, _ in helping}
    left = {name: one for name, one in advice.items() if name not in helped}
    if left:
        lines.append(wrapped(f"{', '.join(map(_label, left))}: {_nothing(left)}", "  "))
    return "\n".join(lines)


def _change_lines(pairs: Sequence[tuple[str, PricedChange]]) -> list[str]:
    """One change on the chips that it helps. Where it is about other places on each, the chips say how many."""
    first = pairs[0][1]
    same = all(change.what == first.what for _, change in pairs)
    places = f" ({some([short(node) for node in first.nodes], 2)})" if first.nodes and same else ""
    head = wrapped(f"{first.what if same else first.name}{places}", "    ")
    by_figures = grouped(pairs, lambda pair: _figures(pair[1], not same))  # chips that share constants say the same
    items = [f"{', '.join(_label(name) for name, _ in alike)} {figures}" for figures, alike in by_figures.items()]
    return [head, *_packed(items, "      ")]


def _packed(items: Sequence[str], indent: str) -> list[str]:
    """Items in as few lines as hold them, none of them broken."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 2 + len(item) <= line_width():
            lines[-1] += f"; {item}"
        else:
            lines.append(indent + item)
    return lines


def _nothing(advice: Mapping[str, Advice]) -> str:
    weighed = max(one.weighed for one in advice.values())
    left_out = max(one.left_out for one in advice.values())
    if not weighed:
        return "no change that is known here applies"
    count = weighed - left_out
    none = "the change that applies does not save" if count == 1 else f"none of {count} changes that apply saves"
    more = f"; {left_out} more were not worked out, because the model is large" if left_out else ""
    return f"nothing; {none} {LEAST_GAIN:.0%} or more{more}"


def _figures(change: PricedChange, count: bool) -> str:
    low, high = change.interval
    places = f" at {plural(len(change.nodes), 'node')}" if count else ""
    return f"{change.before_us:,.0f} -> {change.us:,.0f} us ({low:,.0f} to {high:,.0f}){places}"
