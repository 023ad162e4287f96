"""Chips beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from aneforge.cost.estimate import Estimate
from aneforge.errors import AneforgeError
from aneforge.output.sheet import GREY, MARGIN, SMALL, WIDTH, sheet
from aneforge.output.svg import Box, Drawing, Linear, Spot, shortened, text_width
from aneforge.output.text import plural
from aneforge.report.plots.common import GRID, HOST, basis_text, totals, us_text


def chips_svg(estimates: Mapping[str, Estimate | AneforgeError], title: str) -> str:
    """A bar for each chip with its interval, in the given order; a chip that refused the model gives its error."""
    drawing, top = sheet(title, f"Estimated time of one call on {plural(len(estimates), 'chip')}, with intervals.")
    if not estimates:
        return drawing.svg(drawing.paragraph(top, "No chip was asked for.") + 10)
    known = [estimate for estimate in estimates.values() if isinstance(estimate, Estimate)]
    solid, pale = ("#4a9ccf", "#0072B2"), ("#cfe3f1", "#0072B2")
    entries = [(*solid, "fitted to measurements of the chip")] if any(e.basis.measured for e in known) else []
    entries += [(*pale, "extrapolated from another chip")] if any(not e.basis.measured for e in known) else []
    entries += [(HOST, "#888888", "on the host and between devices")] if any(e.parts for e in known) else []
    top = drawing.legend(top, entries) if entries else top
    columns = _Columns.of(estimates)
    tall = 22.0
    bottom = top + 4 + tall * len(estimates)
    for value, words in columns.scale.ticks(6):
        x = columns.scale(value)
        drawing.line((x, top), (x, bottom + 4), stroke=GRID)
        drawing.text(Spot(x, bottom + 17, "middle"), words, SMALL, class_="tick-x")
    drawing.text(Spot(columns.scale.start - 16, bottom + 17, "end"), "µs", SMALL)
    for number, (label, estimate) in enumerate(estimates.items()):
        y = top + 4 + number * tall
        name = shortened(label, 12, columns.names)
        drawing.text(Spot(columns.scale.start - 8, y + 15, "end"), name, 12, class_="label")
        if isinstance(estimate, Estimate):
            fill, stroke = solid if estimate.basis.measured else pale
            columns.bar(drawing, y, tall, (label, estimate), fill, stroke)
        else:
            drawing.text(
                Spot(columns.scale.start + 4, y + 15),
                "no program",
                12,
                hover=f"{label}: {estimate}",
                fill=GREY,
                font_style="italic",
                class_="refused",
            )
    drawing.line((columns.scale.start, top), (columns.scale.start, bottom + 4), stroke="#888888")
    top = bottom + 26
    if known:
        scopes = ", ".join(dict.fromkeys(estimate.scope for estimate in known))
        words = f"Time of one call ({scopes}). The line is the interval that holds eight measurements of ten."
        if any(estimate.parts for estimate in known):
            words += " Where the host has a part, its ends are sums: no measurement stands behind that part (U75)."
        top = drawing.paragraph(top, words)
    return drawing.svg(top + 10)


@dataclass(frozen=True)
class _Columns:
    """Names, bars, values, bases, from left to right."""

    names: float
    scale: Linear
    values: float
    bases: float

    @classmethod
    def of(cls, estimates: Mapping[str, Estimate | AneforgeError]) -> _Columns:
        known = [estimate for estimate in estimates.values() if isinstance(estimate, Estimate)]
        names = min(200.0, max(text_width(label, 12) for label in estimates))
        values = max((text_width(_value(estimate), 12) for estimate in known), default=0.0)
        bases = min(170.0, max((text_width(basis_text(estimate), SMALL) for estimate in known), default=0.0))
        most = max((max(estimate.us, *estimate.interval) for estimate in known), default=0.0)
        start, end = MARGIN + names + 8, WIDTH - MARGIN - bases - 14 - values - 14
        return cls(names, Linear(most if isfinite(most) and most > 0 else 1.0, start, end), end + 14 + values, bases)

    def bar(
        self, drawing: Drawing, y: float, tall: float, named: tuple[str, Estimate], fill: str, stroke: str
    ) -> None:
        label, estimate = named
        low, high = (self.scale(value) for value in estimate.interval)
        hover = f"{label}: {totals(estimate)}; {estimate.basis.rule}"
        bar = Box(self.scale.start, y + 4, self.scale(estimate.us), y + tall - 4)
        drawing.rect(bar, fill, hover, stroke=stroke, stroke_width=0.8, class_="bar")
        if estimate.parts:
            elsewhere = estimate.us - sum(part.us for part in estimate.parts if part.program is not None)
            ends = self.scale(estimate.us - elsewhere), self.scale(estimate.us)
            drawing.rect(Box(ends[0], y + 4, ends[1], y + tall - 4), HOST, estimate.in_words(), class_="host")
        middle = y + tall / 2
        drawing.line((low, middle), (high, middle), stroke_width=1.2, class_="whisker")
        for x in (low, high):
            drawing.line((x, middle - 4), (x, middle + 4), stroke_width=1.2)
        drawing.text(Spot(self.values, y + 15, "end"), _value(estimate), 12, class_="value")
        words = shortened(basis_text(estimate), SMALL, self.bases)
        drawing.text(Spot(self.values + 14, y + 15), words, SMALL, fill=GREY, class_="basis")


def _value(estimate: Estimate) -> str:
    return f"{us_text(estimate.us)} µs"
