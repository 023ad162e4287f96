"""What a comparison of chips found: nodes, outputs and chips, as records, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isinf
from typing import Any

import numpy as np

from aneforge import text
from aneforge.errors import AneforgeError
from aneforge.frames import Tabular
from aneforge.sim.compare import Summary
from aneforge.sim.fidelity import FIDELITIES
from aneforge.svg import Picture
from aneforge.text import grouped, plural, short

_ROWS = 24  # nodes that the text shows; to_json has all
_OUTPUT_ROWS = 16
_NAMES = 6
_STARS = (1, 16, 256, 4096)


@dataclass(frozen=True)
class NodeDifference:
    """One of the user's nodes on two chips, over all samples."""

    node: str
    op: str
    """The backend op that shows it on the reference; ``output`` for an output."""
    place: int
    """Its number in the order of the reference's program, or among the outputs."""
    elements: int
    changed: int
    """Elements with other bits."""
    max_ulp: int
    """In steps of fp16, over elements that are finite on both chips, or infinite on both."""
    mean_ulp: float
    scaled_ulp: float
    """The largest difference in steps as large as those at the node's largest number. Steps are tiny near zero, and
    thousands of them may be less than one of these."""
    max_abs: float
    relative: float
    """The norm of the difference over that of the reference, where both are finite."""
    lost_reference: int
    """Elements that are finite on the other chip only."""
    lost_here: int
    """Elements that are finite on the reference only."""
    fidelity: tuple[str, str]
    """How far the node's own ops can be trusted, on the reference and on the other chip."""

    @property
    def lost(self) -> int:
        """Elements that are finite on one of both only."""
        return self.lost_reference + self.lost_here

    @property
    def basis(self) -> str:
        """The weaker fidelity of both: a difference between modelled ops is itself a modelled one."""
        return max(self.fidelity, key=FIDELITIES.index)

    def to_json(self) -> dict[str, Any]:
        return {**_plain(self.__dict__), "lost": self.lost}


@dataclass(frozen=True)
class OutputDifference(NodeDifference):
    """One output on two chips. Its fidelity is that of the weakest op that leads to it."""

    cosine: float
    top1: float | None
    """The share of rows whose largest element is at the same place; None where an output is not a list of scores."""
    top1_axis: int | None
    """Scores lie along the last axis of an output of up to three axes, or along the channels of a map of one pixel."""


@dataclass(frozen=True)
class NonFinite:
    """The earliest step of a program, over all samples, that gave a number which is not finite."""

    layer: int
    op: str
    nodes: tuple[str, ...]
    sample: int
    """The first sample in which it is that step, counted from zero."""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "nodes": list(self.nodes)}

    def __str__(self) -> str:
        return f"layer {self.layer}, {self.op} ({', '.join(self.nodes)})"


@dataclass(frozen=True)
class Distance:
    """An output of a chip and the float64 result of the graph. Both errors leave out what is not finite."""

    relative: float
    """The norm of the error over that of the result."""
    max_abs: float
    lost: int
    """Numbers that are finite in float64 only."""

    def to_json(self) -> dict[str, Any]:
        return _plain(self.__dict__)


@dataclass(frozen=True)
class Pair:
    """A chip against the reference."""

    target: str
    nodes: tuple[NodeDifference, ...]
    """Every node that both programs show, in the order of the reference's."""
    outputs: tuple[OutputDifference, ...]
    not_compared: dict[str, str]
    """The other nodes, and why."""
    one_run: bool
    """Whether program and arithmetic are the reference's own: then there is nothing that could differ."""

    @property
    def differing(self) -> list[NodeDifference]:
        return [node for node in self.nodes if node.changed]

    @property
    def first_differing(self) -> str | None:
        """The first node, in the order of the program, whose bits differ; an output where no node shows it."""
        first = next((difference for difference in (*self.nodes, *self.outputs) if difference.changed), None)
        return None if first is None else first.node

    @property
    def same(self) -> bool:
        return self.first_differing is None

    def exceeds(self, ulp: float) -> list[OutputDifference]:
        """The outputs that differ by more steps than allowed, or are infinite on one chip only."""
        return [output for output in self.outputs if output.max_ulp > ulp or output.lost]

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "same": self.same,
            "one_run": self.one_run,
            "first_differing": self.first_differing,
            "outputs": [output.to_json() for output in self.outputs],
            "nodes": [node.to_json() for node in self.nodes],
            "not_compared": self.not_compared,
        }


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """One graph on several chips, by the names that were asked for."""

    reference: str
    targets: dict[str, str]
    """The compiler's target behind each name, in the order asked for; only those with a program."""
    refused: dict[str, str]
    """The others, and why."""
    samples: int
    mode: str
    """How it was simulated: ``exact`` or ``fast``."""
    pairs: dict[str, Pair]
    first_non_finite: dict[str, NonFinite | None]
    float64: dict[str, dict[str, Distance]]
    """By chip and output, where ``"float64"`` was among the targets."""
    shared: tuple[tuple[str, ...], ...]
    """Chips with one program and one arithmetic, which were simulated once."""
    outputs: dict[str, dict[str, Summary]] = field(default_factory=dict)
    """By chip and output: the range and mean of its values over all samples."""
    model: str = ""
    seed: int | None = None
    """What the inputs were drawn from; None where they were given."""
    fail_above: float | None = None
    """The most steps of fp16 by which an output may differ; None for any number."""
    first_sample: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, repr=False)
    """By chip and output: the arrays of the first sample."""
    fidelity: dict[str, dict[str, int]] = field(default_factory=dict)
    """By chip: how many of its ops are exact, modelled or assumed."""
    in_part: dict[str, str] = field(default_factory=dict)
    """The chips that run only a part of the model on the engine, and how much: the host has the rest, in float32."""

    def __getitem__(self, name: str) -> Pair:
        if name not in self.pairs:
            raise AneforgeError(f"{name}: not compared with {self.reference}. Choose one: {', '.join(self.pairs)}.")
        return self.pairs[name]

    @property
    def same(self) -> bool:
        """Whether every chip gives the reference's bits, as far as values are there to compare."""
        return all(pair.same for pair in self.pairs.values())

    @property
    def failed(self) -> list[str]:
        """The chips whose outputs differ by more than ``fail_above``."""
        return [] if self.fail_above is None else list(self.exceeds(self.fail_above))

    @property
    def ok(self) -> bool:
        """Whether no output differs by more than ``fail_above``."""
        return not self.failed

    def by_node(self) -> dict[str, dict[str, NodeDifference]]:
        """Every node that some chip shows beside the reference, by chip, in the order of the reference's program."""
        cells: dict[str, dict[str, NodeDifference]] = {}
        for name, pair in self.pairs.items():
            for difference in pair.nodes:
                cells.setdefault(difference.node, {})[name] = difference
        places = {node: next(iter(row.values())).place for node, row in cells.items()}
        return {node: cells[node] for node in sorted(cells, key=places.__getitem__)}

    def exceeds(self, ulp: float) -> dict[str, list[OutputDifference]]:
        """By chip, the outputs that differ by more than some steps of fp16 or are infinite on one chip only."""
        over = {name: pair.exceeds(ulp) for name, pair in self.pairs.items()}
        return {name: outputs for name, outputs in over.items() if outputs}

    def records(self) -> list[dict[str, Any]]:
        """A row for each node and chip beside the reference, in the order of the program; steps are those of fp16."""
        names = ("elements", "changed", "max_ulp", "max_abs", "lost", "basis")
        return [
            {"node": node, "op": found.op, "chip": chip, **{name: getattr(found, name) for name in names}}
            for node, row in self.by_node().items()
            for chip, found in row.items()
        ]

    def plot(self) -> Picture:
        """A heat map of nodes by chips."""
        return Picture("heat map", self.heatmap_svg(f"{self.model or 'model'}: where chips differ"))

    def to_json(self) -> dict[str, Any]:
        exact = {
            name: {output: at.to_json() for output, at in outputs.items()} for name, outputs in self.float64.items()
        }
        return {
            "model": self.model,
            "ok": self.ok,
            "failed": self.failed,
            "reference": self.reference,
            "targets": self.targets,
            "refused": self.refused,
            "in_part": self.in_part,
            "samples": self.samples,
            "mode": self.mode,
            "shared": [list(chips) for chips in self.shared],
            "same": self.same,
            "first_non_finite": {name: at and at.to_json() for name, at in self.first_non_finite.items()},
            "outputs": {
                chip: {name: values.to_json() for name, values in outputs.items()}
                for chip, outputs in self.outputs.items()
            },
            "float64": exact,
            "pairs": {name: pair.to_json() for name, pair in self.pairs.items()},
        }

    def heatmap_svg(self, title: str) -> str:
        """Nodes down, chips across, colour by steps of fp16: the text of an SVG file."""
        from aneforge.numerics.heatmap import heatmap_svg

        return heatmap_svg(self, title)

    def outputs_text(self) -> str:
        """The range and mean of every output, chip by chip."""
        lines = []
        for chip, outputs in self.outputs.items():
            lines.append(f"{chip} ({self.targets[chip]})")
            lines += [f"{name} {list(values.shape)} {values}" for name, values in outputs.items()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n\n".join(_parts(self))

    def __repr__(self) -> str:
        differ = [name for name, pair in self.pairs.items() if not pair.same]
        return f"<{', '.join(self.pairs)} against {self.reference}: {', '.join(differ) or 'none'} with other bits>"


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """As JSON has them: it knows no infinite number, and no tuple."""
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {name: str(value) if isinstance(value, float) and isinf(value) else value for name, value in listed.items()}


# As text.


def _parts(comparison: Comparison) -> Iterator[str]:
    if comparison.pairs:
        yield _chips(comparison)
        yield from _nodes(comparison)
        yield _outputs(comparison)
    if comparison.float64:
        yield _exact(comparison)
    lost: dict[str, list[str]] = {}
    for name, at in comparison.first_non_finite.items():
        if at is not None:
            sample = f", sample {at.sample}" if comparison.samples > 1 else ""
            lost.setdefault(f"{at}{sample}", []).append(name)
    if lost:
        yield "\n".join(f"first not finite on {', '.join(chips)}: {at}" for at, chips in lost.items())
    if any(pair.not_compared for pair in comparison.pairs.values()):
        yield _missing(comparison)
    if comparison.in_part:
        yield "\n".join(_in_part(comparison))
    if comparison.refused:
        yield "\n".join(f"{name}: no program: {why}" for name, why in comparison.refused.items())


def _in_part(comparison: Comparison) -> Iterator[str]:
    """How much of the model each chip has on the engine, where it is not all."""
    for verdict, chips in grouped(comparison.in_part.items(), lambda item: item[1]).items():
        names = ", ".join(name for name, _ in chips)
        yield f"{names}: {verdict}; the rest is marked host and computed in float32, the same for all chips"


def _chips(comparison: Comparison) -> str:
    samples = plural(comparison.samples, "sample")
    how = f"{samples}, {comparison.mode} simulation"
    lines = [f"{', '.join(comparison.pairs)} against {comparison.reference}: {how}"]
    for name, pair in comparison.pairs.items():
        shown = f"{plural(len(pair.nodes), 'node')} that both show"
        if pair.one_run:
            lines.append(f"{name}: the same program and arithmetic, so the same bits")
        elif pair.same:
            lines.append(f"{name}: the same bits in the outputs and in {shown}, on {samples}")
        else:
            lines.append(f"{name}: {len(pair.differing)} of {shown} differ, first at {pair.first_differing}")
    if any(pair.same and not pair.one_run for pair in comparison.pairs.values()):
        lines.append(
            f"other inputs may differ: this was {samples}; aneforge compare --any-input and aneforge risks hold for "
            "all inputs"
        )
    return "\n".join(lines)


def _nodes(comparison: Comparison) -> Iterator[str]:
    """Nodes that differ somewhere, in the order of the program; of many, the first and those that differ most."""
    by_node = comparison.by_node()
    differ = {node: cells for node, cells in by_node.items() if any(cell.changed for cell in cells.values())}
    if not differ:
        return
    order = {node: place for place, node in enumerate(by_node)}
    first, *rest = differ
    rest.sort(key=lambda node: max((cell.lost > 0, cell.max_ulp) for cell in differ[node].values()), reverse=True)
    kept = sorted([first, *rest[: _ROWS - 1]], key=order.__getitem__)
    rows = []
    for node in kept:
        cells = differ[node]
        op = next(iter(cells.values())).op
        scaled = max(cell.scaled_ulp for cell in cells.values())
        rows.append((short(node), op, *(_cell(cells.get(name)) for name in comparison.pairs), f"{scaled:.3g}"))
    table = text.columns(("node", "op", *comparison.pairs, "full scale"), rows)
    more = len(differ) - len(kept)
    if more:
        table += f"\n... and {more} more node{'' if more == 1 else 's'} with smaller differences (JSON has all)"
    legend = _legend([differ[node] for node in kept])
    yield f"most steps of fp16 between {comparison.reference} and\n{table}\n{legend}"


def _cell(difference: NodeDifference | None) -> str:
    if difference is None:
        return "-"
    if not difference.changed:
        return "="
    if difference.lost:
        words = f"{difference.lost:,} lost"
    else:
        words = f"{difference.max_ulp:,}"
        stars = sum(difference.max_ulp >= least for least in _STARS)
        words += f" {'*' * stars}" if stars else ""
    return words if difference.basis == "exact" else f"{words} ~"


def _legend(rows: Sequence[dict[str, NodeDifference]]) -> str:
    cells = [cell for row in rows for cell in row.values() if cell.changed]
    parts = ["= same bits", *(f"{'*' * count} from {least:,}" for count, least in enumerate(_STARS, 1))]
    if any(cell.lost for cell in cells):
        parts.append("lost: finite on one of both only")
    if any(cell.basis != "exact" for cell in cells):
        parts.append("~ by an op whose numbers are modelled or assumed")
    scale = "full scale: the largest difference in steps of the size at the node's largest number"
    return f"{', '.join(parts)}\n{scale}"


def _outputs(comparison: Comparison) -> str:
    rows = []
    for name, pair in comparison.pairs.items():
        for output in pair.outputs:
            steps = (output.max_ulp, f"{output.mean_ulp:.3g}", f"{output.scaled_ulp:.3g}", output.lost)
            top1 = "-" if output.top1 is None else f"{output.top1:.2%}"
            rows.append(
                (name, output.node, *steps, f"{output.relative:.3g}", f"{output.cosine:.9g}", top1, output.basis)
            )
    steps_heads = ("max ulp", "mean ulp", "full scale", "lost")
    heads = ("chip", "output", *steps_heads, "relative", "cosine", "same top-1", "rests on")
    return _cut(text.columns(heads, rows[:_OUTPUT_ROWS]), len(rows) - _OUTPUT_ROWS)


def _exact(comparison: Comparison) -> str:
    rows = [
        (name, output, f"{at.relative:.3g}", f"{at.max_abs:.3g}", at.lost)
        for name, outputs in comparison.float64.items()
        for output, at in outputs.items()
    ]
    table = text.columns(("chip", "output", "error against float64", "largest", "lost"), rows[:_OUTPUT_ROWS])
    return _cut(table, len(rows) - _OUTPUT_ROWS)


def _cut(table: str, more: int) -> str:
    return f"{table}\n... and {more} more (JSON has all)" if more > 0 else table


def _missing(comparison: Comparison) -> str:
    """Each reason once, with the nodes that no chip has values for, or which chips have none."""
    reasons: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    chips: dict[tuple[str, str], list[str]] = {}
    for name, pair in comparison.pairs.items():
        for node, why in pair.not_compared.items():
            chips.setdefault((node, why), []).append(name)
    for (node, why), names in chips.items():
        reasons.setdefault((why, tuple(names)), []).append(node)
    lines = []
    for (why, names), nodes in reasons.items():
        where = "" if len(names) == len(comparison.pairs) else f" ({', '.join(names)})"
        lines.append(f"not compared{where}: {_some(nodes)}: {why}")
    return "\n".join(lines)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")
