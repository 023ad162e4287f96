"""Chips beside each other; and the colours and words that all pictures of estimates share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from aneforge.chips.names import chip_label
from aneforge.cost.estimate import Estimate, LayerEstimate
from aneforge.errors import AneforgeError
from aneforge.svg import GREY, MARGIN, SMALL, WIDTH, Box, Drawing, Linear, Spot, sheet, shortened, text_width
from aneforge.text import plural

# What all pictures of estimates share: the colours, and numbers in words.


MOST_PANELS = 4
"""Chips that a roofline or a timeline shows at most; more would not be read."""

# Okabe and Ito's colours, which the common kinds of colour blindness keep apart.
_COLOURS = {"compute": "#0072B2", "weights": "#D55E00", "activations": "#009E73", "dispatch": "#CC79A7"}
_OTHER_COLOURS = ("#E69F00", "#56B4E9", "#000000")
CALL = "#999999"
COPIES = "#c9b8a0"
HOST = "#F0E442"
"""The host's part of a split model, a band of which the middle is drawn."""
CROSSING = "#444444"
GRID = "#e4e4e4"


def by_chip(estimates: Estimate | Mapping[str, Estimate], picture: str) -> dict[str, Estimate]:
    if isinstance(estimates, Estimate):
        return {chip_label(estimates.basis.target.name): estimates}
    if not 1 <= len(estimates) <= MOST_PANELS:
        raise AneforgeError(
            f"a {picture} shows one to {MOST_PANELS} chips, not {len(estimates)}; name fewer, or draw all chips "
            "as chips"
        )
    return dict(estimates)


def colours_of(estimates: Sequence[Estimate]) -> dict[str, str]:
    """A colour for every bound that occurs, in the same order everywhere."""
    bounds = {layer.bound for estimate in estimates for layer in estimate.layers if layer.us > 0}
    named = {bound: colour for bound, colour in _COLOURS.items() if bound in bounds}
    others = sorted(bounds - set(_COLOURS))
    return {**named, **{bound: _OTHER_COLOURS[i % len(_OTHER_COLOURS)] for i, bound in enumerate(others)}}


def us_text(value: float) -> str:
    if 0 < value < 0.01:
        return f"{value:.2g}"
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def layer_name(layer: LayerEstimate, width: float = 150.0) -> str:
    """The user's name of a layer. Of a long one the end stays: exporters put the path in front."""
    named = next((source for source in layer.sources if source.strip()), layer.op)
    return shortened(named, SMALL, width, keep="end")


def hover(layer: LayerEstimate) -> str:
    more = f" and {len(layer.sources) - 4} more" if len(layer.sources) > 4 else ""
    named = ", ".join(shortened(source, 10, 400, keep="end") for source in layer.sources[:4]) + more
    return (
        f"layer {layer.number}: {layer.op} ({named}), {us_text(layer.us)} µs, bound by {layer.bound}; "
        f"{layer.intensity:.3g} operations per byte, {layer.rate / 1e6:.3g} TFLOP/s"
    )


def basis_text(estimate: Estimate) -> str:
    if estimate.basis.fitted:
        return plural(estimate.basis.rows, "measurement")
    return f"factors of {estimate.basis.taken_from}"


def totals(estimate: Estimate) -> str:
    low, high = estimate.interval
    kind = "fitted to" if estimate.basis.fitted else "extrapolated"
    return f"{us_text(estimate.us)} µs a call ({us_text(low)} to {us_text(high)}), {kind} {basis_text(estimate)}"


def band_text(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{us_text(low)} to {us_text(high)} µs"


def shares(estimate: Estimate) -> str:
    whole = estimate.engine_us
    parts = (f"{bound} {us_text(us)} µs ({percent(us / whole)})" for bound, us in estimate.bounds().items() if us > 0)
    return ", ".join(parts) or "nothing"


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "below 1%"


def chips_svg(estimates: Mapping[str, Estimate | AneforgeError], title: str) -> str:
    """A bar for each chip with its interval, in the given order; a chip that refused the model gives its error."""
    drawing, top = sheet(title, f"Estimated time of one call on {plural(len(estimates), 'chip')}, with intervals.")
    if not estimates:
        return drawing.svg(drawing.paragraph(top, "No chip was asked for.") + 10)
    known = [estimate for estimate in estimates.values() if isinstance(estimate, Estimate)]
    solid, pale = ("#4a9ccf", "#0072B2"), ("#cfe3f1", "#0072B2")
    entries = [(*solid, "fitted to measurements of the chip")] if any(e.basis.fitted for e in known) else []
    entries += [(*pale, "extrapolated from another chip")] if any(not e.basis.fitted for e in known) else []
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
            fill, stroke = solid if estimate.basis.fitted else pale
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
