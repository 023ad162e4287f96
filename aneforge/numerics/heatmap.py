"""Where chips differ: nodes down, chips across, coloured by steps of fp16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING

from aneforge.sim.fidelity import FIDELITIES
from aneforge.svg import BOLD, GREY, MARGIN, SMALL, WIDTH, Box, Drawing, Spot, sheet, shortened, text_width
from aneforge.text import plural

if TYPE_CHECKING:
    from aneforge.numerics.compared import Comparison, NodeDifference

_MOST_ROWS = 60  # nodes up to which each has a row of its own; beyond, neighbours share one
_NAMES = 210.0
_ASIDE = 150.0  # two columns of words on the right
_SCALE = 68.0
_TO = " to "
_WIDEST = 96.0
_SAME, _LOST, _NOTHING = "#f0f0f0", "#D55E00", "#ffffff"
_RAMP = ("#ffffcc", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#0c2c84")
_LEVELS = 15.0  # log2 of the most steps between two finite numbers of one sign, nearly


@dataclass(frozen=True)
class _Row:
    """A node, or several neighbours, and by chip what differs most in them."""

    name: str
    nodes: Sequence[Mapping[str, NodeDifference]]
    bold: bool = False

    def cell(self, chip: str) -> NodeDifference | None:
        differences = [cells[chip] for cells in self.nodes if chip in cells]
        return max(
            differences,
            key=lambda difference: (difference.lost > 0, difference.max_ulp, difference.changed),
            default=None,
        )

    def holds(self, chip: str, node: str | None) -> bool:
        return any(chip in cells and cells[chip].node == node for cells in self.nodes)

    @property
    def scaled(self) -> float:
        return max((difference.scaled_ulp for cells in self.nodes for difference in cells.values()), default=0.0)

    @property
    def basis(self) -> str:
        labels = [difference.basis for cells in self.nodes for difference in cells.values()]
        return max(labels, key=FIDELITIES.index, default="")


@dataclass(frozen=True)
class _Grid:
    """The columns, and how tall a row is."""

    chips: tuple[str, ...]
    wide: float
    tall: float
    numbers: bool
    """Whether cells have room for their numbers."""

    @property
    def left(self) -> float:
        return MARGIN + _NAMES + 8

    @property
    def right(self) -> float:
        return self.left + self.wide * len(self.chips)

    def box(self, column: int, y: float) -> Box:
        x = self.left + column * self.wide
        return Box(x, y, x + self.wide - 1, y + self.tall - 1)


def heatmap_svg(comparison: Comparison, title: str) -> str:
    """A row for each node, a column for each chip that is compared with the reference; the outputs below.

    Of many nodes, neighbours share a row, which shows the one that differs most.
    """
    chips = tuple(comparison.pairs)
    described = (
        f"Steps of fp16 between {comparison.reference} and {', '.join(chips) or 'no other chip'}, node by node."
    )
    drawing, top = sheet(title, described)
    if not chips:
        note = "Only the reference has a program, so nothing is compared."
        return drawing.svg(drawing.paragraph(top, note) + 10)
    top = drawing.paragraph(top, _caption(comparison)) + 4
    rows, group = _rows(comparison)
    outputs = [
        _Row(output.node, [{chip: comparison.pairs[chip].outputs[number] for chip in chips}], bold=True)
        for number, output in enumerate(comparison.pairs[chips[0]].outputs)
    ]
    top = drawing.legend(top, _legend([*rows, *outputs], chips)) + 2
    wide = min(_WIDEST, (WIDTH - 2 * MARGIN - _NAMES - 8 - _ASIDE) / len(chips))
    words = [_words(row.cell(chip)) for row in (*rows, *outputs) for chip in chips]
    fits = max(text_width(label, 10) for label in words) <= wide - 6
    grid = _Grid(chips, wide, 18 if len(rows) < 40 else 15, fits)
    top = _heads(drawing, top, grid)
    for row in rows:
        _draw_row(drawing, top, grid, row, comparison)
        top += grid.tall
    top += 8
    for row in outputs:
        _draw_row(drawing, top, grid, row, comparison)
        top += grid.tall
    return drawing.svg(drawing.paragraph(top + 8, _notes(comparison, group)) + 10)


def _caption(comparison: Comparison) -> str:
    alike: dict[str, list[str]] = {}
    for name, pair in comparison.pairs.items():
        differ = f"{len(pair.differing)} of {len(pair.nodes)}, first {pair.first_differing}"
        alike.setdefault("none, the same bits" if pair.same else differ, []).append(name)
    parts = (f"{', '.join(names)}: {outcome}" for outcome, names in alike.items())
    shown = shortened("; ".join(parts), 12, 3 * (WIDTH - 2 * MARGIN))
    return f"Against {comparison.reference}, {plural(comparison.samples, 'sample')}. Nodes that differ: {shown}."


def _notes(comparison: Comparison, group: int) -> str:
    words = [
        "A cell is the largest distance in steps of fp16 of all elements and samples; the lower rows are the outputs.",
        "Near zero the steps of fp16 are tiny, and thousands of them may be next to nothing: full scale is the "
        "largest difference in steps of the size at the node's largest number. The basis is that of the weakest op.",
    ]
    if group > 1:
        words.append(f"Every row stands for up to {group} nodes that follow each other, and shows the largest.")
    if comparison.refused:
        words.append(f"No program: {', '.join(comparison.refused)}.")
    return " ".join(words)


def _rows(comparison: Comparison) -> tuple[list[_Row], int]:
    """The rows, and how many nodes share one at most."""
    nodes = comparison.by_node()
    group = max(1, ceil(len(nodes) / _MOST_ROWS))
    names = list(nodes)
    rows = []
    for start in range(0, len(names), group):
        part = names[start : start + group]
        rows.append(_Row(_span(part), [nodes[name] for name in part]))
    return rows, group


def _span(names: Sequence[str]) -> str:
    if len(names) == 1:
        return shortened(names[0], SMALL, _NAMES, keep="end")
    half = (_NAMES - text_width(_TO, SMALL)) / 2
    return _TO.join(shortened(name, SMALL, half, keep="end") for name in (names[0], names[-1]))


def _heads(drawing: Drawing, top: float, grid: _Grid) -> float:
    """The chips' names over their columns, upright where they are too wide."""
    widest = max(text_width(chip, SMALL) for chip in grid.chips)
    upright = widest > grid.wide - 4
    tall = min(widest, 150.0) + 4 if upright else SMALL + 6
    for column, chip in enumerate(grid.chips):
        x = grid.left + (column + 0.5) * grid.wide
        if upright:
            name, x = shortened(chip, SMALL, 150), x + 0.35 * SMALL
            y = top + tall - 4 - text_width(name, SMALL) / 2
            turn = {"transform": f"rotate(-90 {x:.2f} {y:.2f})"}
            drawing.text(Spot(x, y, "middle"), name, SMALL, hover=chip, class_="chip", **turn)
        else:
            drawing.text(Spot(x, top + tall - 6, "middle"), chip, SMALL, class_="chip")
    drawing.text(Spot(grid.right + _SCALE, top + tall - 6, "end"), "full scale", 10, fill=GREY)
    drawing.text(Spot(grid.right + _SCALE + 10, top + tall - 6), "basis", 10, fill=GREY)
    return top + tall


def _draw_row(drawing: Drawing, y: float, grid: _Grid, row: _Row, comparison: Comparison) -> None:
    base = y + (grid.tall + SMALL) / 2 - 2
    hover = ", ".join(next(iter(cells.values())).node for cells in row.nodes[:12])
    weight = {"font_weight": "bold"} if row.bold else {}
    name = shortened(row.name, SMALL * BOLD, _NAMES, keep="end") if row.bold else row.name
    drawing.text(Spot(grid.left - 8, base, "end"), name, SMALL, hover=hover, class_="label", **weight)
    for column, chip in enumerate(grid.chips):
        difference, box = row.cell(chip), grid.box(column, y)
        first = not row.bold and row.holds(chip, comparison.pairs[chip].first_differing)
        edge = {"stroke": "#000000", "stroke_width": 1.6} if first else {}
        if difference is None:
            edge = {"stroke": "#bbbbbb", "stroke_dasharray": "2 2"}
            box = Box(box.left + 0.5, box.top + 0.5, box.right - 0.5, box.bottom - 0.5)
        drawing.rect(box, _colour(difference), _hover(chip, difference, row, comparison), **edge, class_="cell")
        words = _words(difference)
        if words and grid.numbers:
            ink = "#ffffff" if _is_dark(difference) else "#222222"
            spot = Spot((box.left + box.right) / 2, base, "middle")
            drawing.text(spot, words, 10, fill=ink, class_="value", pointer_events="none")
    scaled = f"{row.scaled:,.0f}" if row.scaled >= 100 else f"{row.scaled:.3g}"
    drawing.text(Spot(grid.right + _SCALE, base, "end"), scaled, 10, fill=GREY, class_="scaled")
    drawing.text(Spot(grid.right + _SCALE + 10, base), row.basis, 10, fill=GREY, class_="basis")


def _level(difference: NodeDifference) -> float:
    return min(1.0, log2(max(1, difference.max_ulp)) / _LEVELS)


def _colour(difference: NodeDifference | None) -> str:
    if difference is None:
        return _NOTHING
    if difference.lost:
        return _LOST
    return _shade(_level(difference)) if difference.changed else _SAME


def _shade(level: float) -> str:
    at = level * (len(_RAMP) - 1)
    low = min(int(at), len(_RAMP) - 2)
    one, two = (tuple(int(_RAMP[place][i : i + 2], 16) for i in (1, 3, 5)) for place in (low, low + 1))
    mixed = (round(a + (b - a) * (at - low)) for a, b in zip(one, two, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _is_dark(difference: NodeDifference | None) -> bool:
    return difference is not None and (difference.lost > 0 or (difference.changed > 0 and _level(difference) > 0.6))


def _words(difference: NodeDifference | None) -> str:
    if difference is None or not difference.changed:
        return ""
    return f"{difference.lost:,} lost" if difference.lost else f"{difference.max_ulp:,}"


def _hover(chip: str, difference: NodeDifference | None, row: _Row, comparison: Comparison) -> str:
    if difference is None:
        return f"{row.name}: no values to compare on {chip} and {comparison.reference}"
    named = f"{difference.node} ({difference.op}), {chip} against {comparison.reference}"
    if not difference.changed:
        return f"{named}: the same bits in {plural(difference.elements, 'element')}"
    lost = f"; {difference.lost:,} finite on one of both only" if difference.lost else ""
    return (
        f"{named}: {difference.changed:,} of {plural(difference.elements, 'element')} differ, by up to "
        f"{difference.max_ulp:,} steps, "
        f"{difference.mean_ulp:.3g} on average, {difference.scaled_ulp:.3g} at full scale; relative "
        f"{difference.relative:.3g}{lost}; "
        f"{difference.fidelity[0]} on {comparison.reference}, {difference.fidelity[1]} on {chip}"
    )


def _legend(rows: Sequence[_Row], chips: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    cells = [row.cell(chip) for row in rows for chip in chips]
    yield _SAME, "#bbbbbb", "same bits"
    most = max((cell.max_ulp for cell in cells if cell is not None), default=0)
    for power in range(0, 16, 2):
        if 2**power <= max(1, most):
            yield _shade(power / _LEVELS), "#bbbbbb", f"{2**power:,}"
    if any(cell is not None and cell.lost for cell in cells):
        yield _LOST, "none", "finite on one chip only"
    if any(cell is None for cell in cells):
        yield _NOTHING, "#bbbbbb", "nothing to compare"
    if any(cell is not None and cell.changed for cell in cells):
        yield "none", "#000000", "first that differs"
