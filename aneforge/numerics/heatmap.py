"""Where chips part: nodes down, chips across, coloured by steps of fp16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING

from aneforge.output.sheet import BOLD, GREY, MARGIN, SMALL, WIDTH, count, sheet
from aneforge.output.svg import Box, Drawing, Spot, shortened, text_width
from aneforge.sim.fidelity import FIDELITIES

if TYPE_CHECKING:
    from aneforge.numerics.compared import Comparison, NodeDifference

__all__ = ["heatmap_svg"]

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
        found = [cells[chip] for cells in self.nodes if chip in cells]
        return max(found, key=lambda each: (each.lost > 0, each.max_ulp, each.changed), default=None)

    def holds(self, chip: str, node: str | None) -> bool:
        return any(chip in cells and cells[chip].node == node for cells in self.nodes)

    @property
    def scaled(self) -> float:
        return max((each.scaled_ulp for cells in self.nodes for each in cells.values()), default=0.0)

    @property
    def basis(self) -> str:
        labels = [each.basis for cells in self.nodes for each in cells.values()]
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


def heatmap_svg(found: Comparison, title: str) -> str:
    """A row for each node, a column for each chip that is held against the reference; the outputs below.

    Of many nodes, neighbours share a row, which shows the one that differs most.
    """
    chips = tuple(found.pairs)
    described = f"Steps of fp16 between {found.reference} and {', '.join(chips) or 'no other chip'}, node by node."
    drawing, top = sheet(title, described)
    if not chips:
        told = "There is no second chip to hold against the reference."
        return drawing.svg(drawing.paragraph(top, told) + 10)
    top = drawing.paragraph(top, _caption(found)) + 4
    rows, group = _rows(found)
    outputs = [
        _Row(each.node, [{chip: found.pairs[chip].outputs[number] for chip in chips}], bold=True)
        for number, each in enumerate(found.pairs[chips[0]].outputs)
    ]
    top = drawing.legend(top, _legend([*rows, *outputs], chips)) + 2
    wide = min(_WIDEST, (WIDTH - 2 * MARGIN - _NAMES - 8 - _ASIDE) / len(chips))
    words = [_words(row.cell(chip)) for row in (*rows, *outputs) for chip in chips]
    fits = max(text_width(each, 10) for each in words) <= wide - 6
    grid = _Grid(chips, wide, 18 if len(rows) < 40 else 15, fits)
    top = _heads(drawing, top, grid)
    for row in rows:
        _draw_row(drawing, top, grid, row, found)
        top += grid.tall
    top += 8
    for row in outputs:
        _draw_row(drawing, top, grid, row, found)
        top += grid.tall
    return drawing.svg(drawing.paragraph(top + 8, _notes(found, group)) + 10)


def _caption(found: Comparison) -> str:
    alike: dict[str, list[str]] = {}
    for name, pair in found.pairs.items():
        differ = f"{len(pair.differing)} of {len(pair.nodes)}, first {pair.first_differing}"
        alike.setdefault("none, the same bits" if pair.same else differ, []).append(name)
    parts = (f"{', '.join(names)}: {told}" for told, names in alike.items())
    shown = shortened("; ".join(parts), 12, 3 * (WIDTH - 2 * MARGIN))
    return f"Against {found.reference}, {count(found.samples, 'sample')}. Nodes that differ: {shown}."


def _notes(found: Comparison, group: int) -> str:
    words = [
        "A cell is the largest distance in steps of fp16 of all elements and samples; the lower rows are the outputs.",
        "Near zero the steps of fp16 are tiny, and thousands of them may be next to nothing: full scale is the "
        "largest difference in steps of the size at the node's largest number. The basis is that of the weakest op.",
    ]
    if group > 1:
        words.append(f"Every row stands for up to {group} nodes that follow each other, and shows the largest.")
    if found.refused:
        words.append(f"No program: {', '.join(found.refused)}.")
    return " ".join(words)


def _rows(found: Comparison) -> tuple[list[_Row], int]:
    """The rows, and how many nodes share one at most."""
    nodes = found.by_node()
    group = max(1, ceil(len(nodes) / _MOST_ROWS))
    names = list(nodes)
    made = []
    for start in range(0, len(names), group):
        part = names[start : start + group]
        made.append(_Row(_span(part), [nodes[name] for name in part]))
    return made, group


def _span(names: Sequence[str]) -> str:
    if len(names) == 1:
        return shortened(names[0], SMALL, _NAMES, keep="end")
    half = (_NAMES - text_width(_TO, SMALL)) / 2
    return _TO.join(shortened(each, SMALL, half, keep="end") for each in (names[0], names[-1]))


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


def _draw_row(drawing: Drawing, y: float, grid: _Grid, row: _Row, found: Comparison) -> None:
    base = y + (grid.tall + SMALL) / 2 - 2
    hover = ", ".join(next(iter(cells.values())).node for cells in row.nodes[:12])
    weight = {"font_weight": "bold"} if row.bold else {}
    name = shortened(row.name, SMALL * BOLD, _NAMES, keep="end") if row.bold else row.name
    drawing.text(Spot(grid.left - 8, base, "end"), name, SMALL, hover=hover, class_="label", **weight)
    for column, chip in enumerate(grid.chips):
        each, box = row.cell(chip), grid.box(column, y)
        first = not row.bold and row.holds(chip, found.pairs[chip].first_differing)
        edge = {"stroke": "#000000", "stroke_width": 1.6} if first else {}
        if each is None:
            edge = {"stroke": "#bbbbbb", "stroke_dasharray": "2 2"}
            box = Box(box.left + 0.5, box.top + 0.5, box.right - 0.5, box.bottom - 0.5)
        drawing.rect(box, _colour(each), _hover(chip, each, row, found), **edge, class_="cell")
        words = _words(each)
        if words and grid.numbers:
            ink = "#ffffff" if _is_dark(each) else "#222222"
            spot = Spot((box.left + box.right) / 2, base, "middle")
            drawing.text(spot, words, 10, fill=ink, class_="value", pointer_events="none")
    scaled = f"{row.scaled:,.0f}" if row.scaled >= 100 else f"{row.scaled:.3g}"
    drawing.text(Spot(grid.right + _SCALE, base, "end"), scaled, 10, fill=GREY, class_="scaled")
    drawing.text(Spot(grid.right + _SCALE + 10, base), row.basis, 10, fill=GREY, class_="basis")


def _level(each: NodeDifference) -> float:
    return min(1.0, log2(max(1, each.max_ulp)) / _LEVELS)


def _colour(each: NodeDifference | None) -> str:
    if each is None:
        return _NOTHING
    if each.lost:
        return _LOST
    return _shade(_level(each)) if each.changed else _SAME


def _shade(level: float) -> str:
    at = level * (len(_RAMP) - 1)
    low = min(int(at), len(_RAMP) - 2)
    one, two = (tuple(int(_RAMP[place][i : i + 2], 16) for i in (1, 3, 5)) for place in (low, low + 1))
    mixed = (round(a + (b - a) * (at - low)) for a, b in zip(one, two, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _is_dark(each: NodeDifference | None) -> bool:
    return each is not None and (each.lost > 0 or (each.changed > 0 and _level(each) > 0.6))


def _words(each: NodeDifference | None) -> str:
    if each is None or not each.changed:
        return ""
    return f"{each.lost:,} lost" if each.lost else f"{each.max_ulp:,}"


def _hover(chip: str, each: NodeDifference | None, row: _Row, found: Comparison) -> str:
    if each is None:
        return f"{row.name}: no values to compare on {chip} and {found.reference}"
    named = f"{each.node} ({each.op}), {chip} against {found.reference}"
    if not each.changed:
        return f"{named}: the same bits in {count(each.elements, 'element')}"
    lost = f"; {each.lost:,} finite on one of both only" if each.lost else ""
    return (
        f"{named}: {each.changed:,} of {count(each.elements, 'element')} differ, by up to {each.max_ulp:,} steps, "
        f"{each.mean_ulp:.3g} on average, {each.scaled_ulp:.3g} at full scale; relative {each.relative:.3g}{lost}; "
        f"{each.fidelity[0]} on {found.reference}, {each.fidelity[1]} on {chip}"
    )


def _legend(rows: Sequence[_Row], chips: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    cells = [row.cell(chip) for row in rows for chip in chips]
    yield _SAME, "#bbbbbb", "same bits"
    most = max((each.max_ulp for each in cells if each is not None), default=0)
    for power in range(0, 16, 2):
        if 2**power <= max(1, most):
            yield _shade(power / _LEVELS), "#bbbbbb", f"{2**power:,}"
    if any(each is not None and each.lost for each in cells):
        yield _LOST, "none", "finite on one chip only"
    if any(each is None for each in cells):
        yield _NOTHING, "#bbbbbb", "nothing to compare"
    if any(each is not None and each.changed for each in cells):
        yield "none", "#000000", "first that differs"
