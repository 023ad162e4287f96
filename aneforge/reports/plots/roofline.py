"""Layers under the roofline of their chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, hypot, sqrt

from aneforge.cost.estimate import Estimate, LayerEstimate
from aneforge.reports.plots.chips import GRID, by_chip, colours_of, hover, layer_name, totals, us_text
from aneforge.svg import (
    BOLD,
    GREY,
    MARGIN,
    SMALL,
    WIDTH,
    Box,
    Drawing,
    Log,
    Room,
    Spot,
    sheet,
    shortened,
    text_width,
)
from aneforge.text import plural

ABOVE_SLOPE = (
    "The slope is the rate at which weights are read once: a layer whose activations stay on chip can lie above it."
)
ABOVE_PEAK = "Above the flat part lie layers that are rewritten to fewer operations than are counted here."
"""What a layer above the roof means, below and beyond the ridge."""


def roofline_svg(estimate: Estimate | Mapping[str, Estimate], title: str) -> str:
    """Every layer as a dot under the roof of its chip; several chips, by label, are panels with the same axes."""
    chips = by_chip(estimate, "roofline")
    caption = f"Roofline of {', '.join(chips)}: operations per second over operations per byte, a dot for each layer."
    drawing, top = sheet(title, caption)
    colours = colours_of(list(chips.values()))
    longest = max((layer.us for estimate in chips.values() for layer in estimate.layers), default=0.0)
    top = drawing.legend(top, [(colour, "none", f"bound by {bound}") for bound, colour in colours.items()])
    across = 1 if len(chips) == 1 else 2
    wide, tall = (WIDTH - (across + 1) * MARGIN) / across, 480.0 if across == 1 else 390.0
    domain = _domain(list(chips.values()))
    for number, (label, chip_estimate) in enumerate(chips.items()):
        left = MARGIN + number % across * (wide + MARGIN)
        high = top + number // across * (tall + 8)
        panel = _Panel(Box(left, high, left + wide, high + tall), domain, longest, colours)
        panel.draw(drawing, label, chip_estimate, labels=10 if across == 1 else 6)
    top += ceil(len(chips) / across) * (tall + 8)
    top = drawing.paragraph(top + 4, _roofline_caption(list(chips.values()), longest))
    return drawing.svg(top + 10)


def _placed(estimate: Estimate) -> list[LayerEstimate]:
    """Layers that have a place on logarithmic axes, longest first."""
    shown = [layer for layer in estimate.layers if layer.intensity > 0 and layer.rate > 0]
    return sorted(shown, key=lambda layer: (-layer.us, layer.number))


def _domain(estimates: Sequence[Estimate]) -> tuple[tuple[float, float], tuple[float, float]]:
    """From a bit below the lowest to a bit above the highest, in both directions, with the ridge well inside."""
    xs, ys = [], []
    for estimate in estimates:
        xs += [estimate.roof.ridge / 10, estimate.roof.ridge * 4, *(layer.intensity for layer in _placed(estimate))]
        ys += [estimate.roof.peak / 100, estimate.roof.peak, *(layer.rate for layer in _placed(estimate))]
    return _padded(min(xs), max(xs)), _padded(min(ys), max(ys))


def _padded(low: float, high: float) -> tuple[float, float]:
    """Room for the largest dot at both ends, on however many powers of ten."""
    pad = max(1.5, (high / low) ** 0.05)
    return low / pad, high * pad


def _roofline_caption(estimates: Sequence[Estimate], longest: float) -> str:
    words = "No layer takes time."
    if longest:
        words = f"The area of a dot is the layer's time; the longest takes {us_text(longest)} µs."
    hidden = sum(len(estimate.layers) - len(_placed(estimate)) for estimate in estimates)
    if hidden:
        words += f" {plural(hidden, 'layer')} without operations or time {'has' if hidden == 1 else 'have'} no place."
    regions = sum(part.program is None for estimate in estimates for part in estimate.parts)
    if regions:
        words += f" {plural(regions, 'region')} of the host {'has' if regions == 1 else 'have'} no place under a roof."
    above = [
        layer.intensity < estimate.roof.ridge
        for estimate in estimates
        for layer in _placed(estimate)
        if layer.rate > 1.001 * estimate.roof.at(layer.intensity)
    ]
    if True in above:
        words += f" {ABOVE_SLOPE}"
    if False in above:
        words += f" {ABOVE_PEAK}"
    return words


class _Panel:
    """One roof with its axes, dots and labels."""

    def __init__(
        self,
        outer: Box,
        domain: tuple[tuple[float, float], tuple[float, float]],
        longest: float,
        colours: Mapping[str, str],
    ) -> None:
        self.outer = outer
        self.frame = Box(outer.left + 62, outer.top + 40, outer.right, outer.bottom - 40)
        (x_low, x_high), (y_low, y_high) = domain
        self.x = Log(x_low, x_high, self.frame.left, self.frame.right)
        self.y = Log(y_low, y_high, self.frame.bottom, self.frame.top)  # operations per microsecond
        self.longest, self.colours = longest, colours
        self.largest = (outer.right - outer.left) / 110 + 7  # the radius of its dot

    def draw(self, drawing: Drawing, label: str, estimate: Estimate, labels: int) -> None:
        self._heading(drawing, label, estimate)
        self._axes(drawing)
        room = Room(self.frame)
        roof = self._roof(drawing, estimate, room)
        shown = _placed(estimate)
        for layer in shown:
            x, y, radius = self._dot(layer)
            drawing.mark(
                "circle",
                hover(layer),
                cx=x,
                cy=y,
                r=radius,
                fill=self.colours[layer.bound],
                fill_opacity=0.6,
                stroke="#ffffff",
                stroke_width=0.5,
                class_="dot",
            )
        self._labels(drawing, shown, room, roof, labels)

    def _heading(self, drawing: Drawing, label: str, estimate: Estimate) -> None:
        left, top, right, _ = self.outer
        roof = f"roof {estimate.roof.peak / 1e6:.3g} TFLOP/s, {estimate.roof.bandwidth / 1e3:.3g} GB/s"
        drawing.text(Spot(right, top + 14, "end"), roof, 12, fill=GREY)
        name = shortened(label, 14 * BOLD, right - left - text_width(roof, 12) - 10)
        drawing.text(Spot(left, top + 14), name, 14, font_weight="bold")
        words = totals(estimate)
        size = 12.0 if text_width(words, 12) <= right - left else 10.5
        drawing.text(Spot(left, top + 31), shortened(words, size, right - left), size, fill=GREY)

    def _axes(self, drawing: Drawing) -> None:
        frame = self.frame
        for value, words in self.x.ticks(int((frame.right - frame.left) / 55)):
            x = self.x(value)
            drawing.line((x, frame.top), (x, frame.bottom), stroke=GRID)
            drawing.text(Spot(x, frame.bottom + 15, "middle"), words, SMALL, class_="tick-x")
        # The axis is in operations per microsecond, its words in millions of them: TFLOP/s.
        tera = Log(self.y.low / 1e6, self.y.high / 1e6, self.y.start, self.y.end)
        for value, words in tera.ticks(9):
            y = tera(value)
            drawing.line((frame.left, y), (frame.right, y), stroke=GRID, class_="grid-y")
            drawing.text(Spot(frame.left - 6, y + 4, "end"), words, SMALL, class_="tick-y")
        drawing.rect(frame, "none", stroke="#888888", class_="frame")
        middle = (frame.left + frame.right) / 2
        drawing.text(Spot(middle, frame.bottom + 32, "middle"), "operations per byte", 12)
        x, y = self.outer.left + 12, (frame.top + frame.bottom) / 2
        turned = f"rotate(-90 {x:.2f} {y:.2f})"
        drawing.text(Spot(x, y, "middle"), "TFLOP/s", 12, transform=turned)

    def _roof(self, drawing: Drawing, estimate: Estimate, room: Room) -> list[Box]:
        """The line, the ridge with its value; what labels should keep off."""
        roof, ridge = estimate.roof, self.x(estimate.roof.ridge)
        left = max(self.x.low, self.y.low / roof.bandwidth)
        start = (self.x(left), self.y(roof.at(left)))
        top = self.y(roof.peak)
        drawing.line(start, (ridge, top), stroke_width=1.6, class_="slope")
        drawing.line((ridge, top), (self.frame.right, top), stroke_width=1.6, class_="peak")
        drawing.line((ridge, top), (ridge, self.frame.bottom), stroke="#888888", stroke_dasharray="4 3")
        drawing.mark("circle", cx=ridge, cy=top, r=3.5, fill="#ffffff", stroke="#222222", class_="ridge")
        words = f"ridge {roof.ridge:,.3g}"
        y = self.frame.bottom - 6
        spot = room.place(words, SMALL, [Spot(ridge + 5, y), Spot(ridge - 5, y, "end")])
        if spot:
            drawing.text(spot, words, SMALL, fill=GREY, class_="label")
        return [
            *_along(start, (ridge, top)),
            Box(ridge, top - 3, self.frame.right, top + 3),
            Box(ridge - 2, top, ridge + 2, self.frame.bottom),
        ]

    def _dot(self, layer: LayerEstimate) -> tuple[float, float, float]:
        return self.x(layer.intensity), self.y(layer.rate), max(1.6, self.largest * sqrt(layer.us / self.longest))

    def _places(self, shown: Sequence[LayerEstimate]) -> list[tuple[tuple[float, float, float], list[LayerEstimate]]]:
        """Dots with the layers whose dots begin within them, longest first."""
        places: list[tuple[tuple[float, float, float], list[LayerEstimate]]] = []
        for layer in shown:
            x, y, radius = self._dot(layer)
            for dot, layers in places:
                if hypot(x - dot[0], y - dot[1]) <= max(5.0, dot[2]):
                    layers.append(layer)
                    break
            else:
                places.append(((x, y, radius), [layer]))
        return places

    def _labels(
        self, drawing: Drawing, shown: Sequence[LayerEstimate], room: Room, roof: Sequence[Box], most: int
    ) -> None:
        """Names of the longest layers; those that share a place share a label."""
        places = self._places(shown)
        dots = [Box(x - radius, y - radius, x + radius, y + radius) for (x, y, radius), _ in places]
        longest = sorted(places, key=lambda place: -sum(layer.us for layer in place[1]))
        for (x, y, radius), layers in longest[:most]:
            words = layer_name(layers[0]) + (f" and {len(layers) - 1} more" if len(layers) > 1 else "")
            spots = list(_around(x, y, radius))
            tried = (room.place(words, SMALL, spots, avoid, (x, y), dots) for avoid in ([*dots, *roof], dots, ()))
            spot = next((place for place in tried if place), None)
            if spot is None:
                continue
            box = spot.box(words, SMALL)
            near = box.nearest((x, y))
            if hypot(near[0] - x, near[1] - y) > radius + 8:
                drawing.line((x, y), near, stroke="#666666", stroke_width=0.7)
            # A white rim keeps the words readable where they lie on a line or a dot.
            drawing.text(
                spot,
                words,
                SMALL,
                hover=hover(layers[0]),
                class_="label",
                paint_order="stroke",
                stroke="#ffffff",
                stroke_width=2.5,
            )


def _along(start: tuple[float, float], end: tuple[float, float]) -> Iterator[Box]:
    """Small boxes that cover a line."""
    steps = max(1, int(abs(end[0] - start[0]) / 6))
    for step in range(steps):
        x, y = (a + (b - a) * step / steps for a, b in zip(start, end, strict=True))
        yield Box(x - 4, y - 4, x + 4, y + 4)


def _around(x: float, y: float, radius: float) -> Iterator[Spot]:
    for reach in (4, 14, 28, 44, 64):
        far = radius + reach
        yield Spot(x + far, y + 4)
        yield Spot(x - far, y + 4, "end")
        yield Spot(x, y - far, "middle")
        yield Spot(x, y + far + 9, "middle")
        for down in (-0.8, 0.8):
            yield Spot(x + 0.8 * far, y + down * far + 4)
            yield Spot(x - 0.8 * far, y + down * far + 4, "end")
