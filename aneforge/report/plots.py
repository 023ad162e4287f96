"""Pictures of estimates: layers under the roofline, layers along time, and chips beside each other.

Each is the text of an SVG file; the same estimates give the same bytes. A picture shows what an estimate says and
adds nothing to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, hypot, isfinite, sqrt

from aneforge.cost.estimate import Estimate, LayerEstimate
from aneforge.errors import AneforgeError
from aneforge.report.svg import Box, Drawing, Linear, Log, Room, Spot, nice_step, shortened, text_width
from aneforge.targets.names import chip_label

__all__ = ["MOST_PANELS", "chips_svg", "roofline_svg", "timeline_svg"]

MOST_PANELS = 4
"""Chips that a roofline or a timeline shows at most; more would not be read."""

_WIDTH = 900.0
_MARGIN = 20.0
# Okabe and Ito's colours, which the common kinds of colour blindness keep apart.
_COLOURS = {"compute": "#0072B2", "weights": "#D55E00", "activations": "#009E73", "dispatch": "#CC79A7"}
_OTHER_COLOURS = ("#E69F00", "#56B4E9", "#000000")
_CALL = "#999999"
_GRID = "#e4e4e4"
_GREY = "#555555"
_SMALL = 11.0
_BOLD = 1.13  # how much wider bold text is


# What all pictures share.


def _by_chip(given: Estimate | Mapping[str, Estimate], picture: str) -> dict[str, Estimate]:
    if isinstance(given, Estimate):
        return {chip_label(given.basis.target.name): given}
    if not 1 <= len(given) <= MOST_PANELS:
        raise AneforgeError(
            f"a {picture} shows one to {MOST_PANELS} chips, not {len(given)}; name fewer, or draw all chips as chips"
        )
    return dict(given)


def _colours(estimates: Sequence[Estimate]) -> dict[str, str]:
    """A colour for every bound that occurs, in the same order everywhere."""
    found = {layer.bound for each in estimates for layer in each.layers if layer.us > 0}
    named = {bound: colour for bound, colour in _COLOURS.items() if bound in found}
    others = sorted(found - set(_COLOURS))
    return {**named, **{bound: _OTHER_COLOURS[i % len(_OTHER_COLOURS)] for i, bound in enumerate(others)}}


def _sheet(title: str, description: str) -> tuple[Drawing, float]:
    drawing = Drawing(_WIDTH, title, description)
    drawing.text(Spot(_MARGIN, 32), shortened(title, 18 * _BOLD, _WIDTH - 2 * _MARGIN), 18, font_weight="bold")
    return drawing, 44.0


def _us(value: float) -> str:
    if 0 < value < 0.01:
        return f"{value:.2g}"
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def _name(layer: LayerEstimate, width: float = 150.0) -> str:
    """The user's name of a layer. Of a long one the end stays: exporters put the path in front."""
    named = next((source for source in layer.sources if source.strip()), layer.op)
    return shortened(named, _SMALL, width, keep="end")


def _hover(layer: LayerEstimate) -> str:
    more = f" and {len(layer.sources) - 4} more" if len(layer.sources) > 4 else ""
    named = ", ".join(shortened(each, 10, 400, keep="end") for each in layer.sources[:4]) + more
    return (
        f"layer {layer.number}: {layer.op} ({named}), {_us(layer.us)} µs, bound by {layer.bound}; "
        f"{layer.intensity:.3g} operations per byte, {layer.rate / 1e6:.3g} TFLOP/s"
    )


def _basis(each: Estimate) -> str:
    if each.basis.measured:
        return _count(each.basis.rows, "measurement")
    return f"from {chip_label(each.basis.taken_from)}"


def _totals(each: Estimate) -> str:
    low, high = each.interval
    kind = "fitted to" if each.basis.measured else "extrapolated"
    return f"{_us(each.us)} µs a call ({_us(low)} to {_us(high)}), {kind} {_basis(each)}"


def _shares(each: Estimate) -> str:
    whole = each.engine_us
    told = (f"{bound} {_us(us)} µs ({_percent(us / whole)})" for bound, us in each.bounds().items() if us > 0)
    return ", ".join(told) or "nothing"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "below 1%"


# The roofline.


def roofline_svg(estimate: Estimate | Mapping[str, Estimate], title: str) -> str:
    """Every layer as a dot under the roof of its chip; several chips, by label, are panels with the same axes."""
    chips = _by_chip(estimate, "roofline")
    told = f"Roofline of {', '.join(chips)}: operations per second over operations per byte, a dot for each layer."
    drawing, top = _sheet(title, told)
    colours = _colours(list(chips.values()))
    longest = max((layer.us for each in chips.values() for layer in each.layers), default=0.0)
    top = drawing.legend(top, [(colour, "none", f"bound by {bound}") for bound, colour in colours.items()])
    across = 1 if len(chips) == 1 else 2
    wide, tall = (_WIDTH - (across + 1) * _MARGIN) / across, 480.0 if across == 1 else 390.0
    domain = _domain(list(chips.values()))
    for number, (label, each) in enumerate(chips.items()):
        left = _MARGIN + number % across * (wide + _MARGIN)
        high = top + number // across * (tall + 8)
        panel = _Panel(Box(left, high, left + wide, high + tall), domain, longest, colours)
        panel.draw(drawing, label, each, labels=10 if across == 1 else 6)
    top += ceil(len(chips) / across) * (tall + 8)
    top = drawing.paragraph(top + 4, _roofline_caption(list(chips.values()), longest))
    return drawing.svg(top + 10)


def _placed(each: Estimate) -> list[LayerEstimate]:
    """Layers that have a place on logarithmic axes, longest first."""
    shown = [layer for layer in each.layers if layer.intensity > 0 and layer.rate > 0]
    return sorted(shown, key=lambda layer: (-layer.us, layer.number))


def _domain(estimates: Sequence[Estimate]) -> tuple[tuple[float, float], tuple[float, float]]:
    """From a bit below the lowest to a bit above the highest, in both directions, with the ridge well inside."""
    xs, ys = [], []
    for each in estimates:
        xs += [each.roof.ridge / 10, each.roof.ridge * 4, *(layer.intensity for layer in _placed(each))]
        ys += [each.roof.peak / 100, each.roof.peak, *(layer.rate for layer in _placed(each))]
    return _padded(min(xs), max(xs)), _padded(min(ys), max(ys))


def _padded(low: float, high: float) -> tuple[float, float]:
    """Room for the largest dot at both ends, on however many powers of ten."""
    pad = max(1.5, (high / low) ** 0.05)
    return low / pad, high * pad


def _roofline_caption(estimates: Sequence[Estimate], longest: float) -> str:
    words = "No layer takes time."
    if longest:
        words = f"The area of a dot is the layer's time; the longest takes {_us(longest)} µs."
    hidden = sum(len(each.layers) - len(_placed(each)) for each in estimates)
    if hidden:
        words += f" {_count(hidden, 'layer')} without operations or time {'has' if hidden == 1 else 'have'} no place."
    above = [
        layer.intensity < each.roof.ridge
        for each in estimates
        for layer in _placed(each)
        if layer.rate > 1.001 * each.roof.at(layer.intensity)
    ]
    if True in above:
        words += (
            " The slope is the rate at which weights are read once: a layer whose activations stay on the chip can"
            " lie above it."
        )
    if False in above:
        words += " Above the flat part lie layers that are rewritten to fewer operations than are counted here."
    return words


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


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

    def draw(self, drawing: Drawing, label: str, each: Estimate, labels: int) -> None:
        self._heading(drawing, label, each)
        self._axes(drawing)
        room = Room(self.frame)
        roof = self._roof(drawing, each, room)
        shown = _placed(each)
        for layer in shown:
            x, y, radius = self._dot(layer)
            drawing.mark(
                "circle",
                _hover(layer),
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

    def _heading(self, drawing: Drawing, label: str, each: Estimate) -> None:
        left, top, right, _ = self.outer
        roof = f"roof {each.roof.peak / 1e6:.3g} TFLOP/s, {each.roof.bandwidth / 1e3:.3g} GB/s"
        drawing.text(Spot(right, top + 14, "end"), roof, 12, fill=_GREY)
        name = shortened(label, 14 * _BOLD, right - left - text_width(roof, 12) - 10)
        drawing.text(Spot(left, top + 14), name, 14, font_weight="bold")
        words = _totals(each)
        size = 12.0 if text_width(words, 12) <= right - left else 10.5
        drawing.text(Spot(left, top + 31), shortened(words, size, right - left), size, fill=_GREY)

    def _axes(self, drawing: Drawing) -> None:
        frame = self.frame
        for value, words in self.x.ticks(int((frame.right - frame.left) / 55)):
            x = self.x(value)
            drawing.line((x, frame.top), (x, frame.bottom), stroke=_GRID)
            drawing.text(Spot(x, frame.bottom + 15, "middle"), words, _SMALL, class_="tick-x")
        # The axis is in operations per microsecond, its words in millions of them: TFLOP/s.
        tera = Log(self.y.low / 1e6, self.y.high / 1e6, self.y.start, self.y.end)
        for value, words in tera.ticks(9):
            y = tera(value)
            drawing.line((frame.left, y), (frame.right, y), stroke=_GRID, class_="grid-y")
            drawing.text(Spot(frame.left - 6, y + 4, "end"), words, _SMALL, class_="tick-y")
        drawing.rect(frame, "none", stroke="#888888", class_="frame")
        middle = (frame.left + frame.right) / 2
        drawing.text(Spot(middle, frame.bottom + 32, "middle"), "operations per byte", 12)
        x, y = self.outer.left + 12, (frame.top + frame.bottom) / 2
        turned = f"rotate(-90 {x:.2f} {y:.2f})"
        drawing.text(Spot(x, y, "middle"), "TFLOP/s", 12, transform=turned)

    def _roof(self, drawing: Drawing, each: Estimate, room: Room) -> list[Box]:
        """The line, the ridge with its value; what labels should keep off."""
        roof, ridge = each.roof, self.x(each.roof.ridge)
        left = max(self.x.low, self.y.low / roof.bandwidth)
        start = (self.x(left), self.y(roof.at(left)))
        top = self.y(roof.peak)
        drawing.line(start, (ridge, top), stroke_width=1.6, class_="slope")
        drawing.line((ridge, top), (self.frame.right, top), stroke_width=1.6, class_="peak")
        drawing.line((ridge, top), (ridge, self.frame.bottom), stroke="#888888", stroke_dasharray="4 3")
        drawing.mark("circle", cx=ridge, cy=top, r=3.5, fill="#ffffff", stroke="#222222", class_="ridge")
        words = f"ridge {roof.ridge:,.3g}"
        y = self.frame.bottom - 6
        spot = room.place(words, _SMALL, [Spot(ridge + 5, y), Spot(ridge - 5, y, "end")])
        if spot:
            drawing.text(spot, words, _SMALL, fill=_GREY, class_="label")
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
            words = _name(layers[0]) + (f" and {len(layers) - 1} more" if len(layers) > 1 else "")
            spots = list(_around(x, y, radius))
            tried = (room.place(words, _SMALL, spots, avoid, (x, y), dots) for avoid in ([*dots, *roof], dots, ()))
            spot = next((each for each in tried if each), None)
            if spot is None:
                continue
            box = spot.box(words, _SMALL)
            near = box.nearest((x, y))
            if hypot(near[0] - x, near[1] - y) > radius + 8:
                drawing.line((x, y), near, stroke="#666666", stroke_width=0.7)
            # A white rim keeps the words readable where they lie on a line or a dot.
            drawing.text(
                spot,
                words,
                _SMALL,
                hover=_hover(layers[0]),
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


# The timeline.

_MOST_ROWS = 48  # layers up to which each has a row of its own


@dataclass(frozen=True)
class _Segment:
    """What one bar stands for: the call around the engine, or a layer."""

    start: float
    us: float
    name: str
    colour: str
    hover: str


def timeline_svg(estimate: Estimate | Mapping[str, Estimate], title: str) -> str:
    """Layers in order along time, the call's own cost first; several chips, by label, on the same scale.

    Few layers have a row each. Many lie end to end on a strip that is broken into lines, as text is.
    """
    chips = _by_chip(estimate, "timeline")
    drawing, top = _sheet(title, f"Time of one call on {', '.join(chips)}, layer by layer in order.")
    colours = _colours(list(chips.values()))
    entries = [(_CALL, "none", "the call around the engine")]
    entries += [(colour, "none", f"bound by {bound}") for bound, colour in colours.items()]
    top = drawing.legend(top, entries)
    segments = {label: _segments(each, colours) for label, each in chips.items()}
    whole = max((each[-1].start + each[-1].us for each in segments.values() if each), default=0.0) or 1.0
    in_rows = sum(len(each) for each in segments.values()) <= _MOST_ROWS
    for label, each in chips.items():
        drawing.text(
            Spot(_MARGIN, top + 16), shortened(label, 14 * _BOLD, _WIDTH - 2 * _MARGIN), 14, font_weight="bold"
        )
        top = drawing.paragraph(top + 21, _timeline_caption(each)) + 6
        if in_rows:
            top = _rows(drawing, top, segments[label], whole)
        else:
            top = _strip(drawing, top, segments[label], whole, max(len(each) for each in segments.values()))
    return drawing.svg(top + 10)


def _segments(each: Estimate, colours: Mapping[str, str]) -> list[_Segment]:
    around = max(0.0, each.us - each.engine_us)
    made = []
    if around > 0:
        made.append(_Segment(0.0, around, "the call", _CALL, f"the call around the engine: {_us(around)} µs"))
    start = around
    for layer in each.layers:
        if layer.us > 0:
            made.append(_Segment(start, layer.us, _name(layer), colours[layer.bound], _hover(layer)))
            start += layer.us
    return made


def _timeline_caption(each: Estimate) -> str:
    still = sum(layer.us <= 0 for layer in each.layers)
    around = max(0.0, each.us - each.engine_us)
    words = (
        f"{_totals(each)}: {_us(around)} µs around the engine ({each.scope}), drawn first; "
        f"{_us(each.engine_us)} µs on it in {_count(len(each.layers), 'layer')}"
    )
    if still:
        words += f", {still} of which take{'s' if still == 1 else ''} no time"
    return f"{words}. Bound by: {_shares(each)}."


def _rows(drawing: Drawing, top: float, segments: Sequence[_Segment], whole: float) -> float:
    """A row for each segment, its name in front and its time behind."""
    tall, names = 18.0, 170.0
    scale = Linear(whole, _MARGIN + names, _WIDTH - _MARGIN - 52)
    bottom = top + tall * len(segments)
    for value, words in scale.ticks():
        x = scale(value)
        drawing.line((x, top), (x, bottom + 4), stroke=_GRID)
        drawing.text(Spot(x, bottom + 17, "middle"), words, _SMALL, class_="tick-x")
    drawing.text(Spot(scale.start - 16, bottom + 17, "end"), "µs", _SMALL)
    for number, each in enumerate(segments):
        y = top + number * tall
        left, right = scale(each.start), scale(each.start + each.us)
        drawing.rect(Box(left, y + 3, right, y + tall - 3), each.colour, each.hover, class_="bar")
        drawing.text(Spot(_MARGIN + names - 8, y + 13, "end"), each.name, _SMALL, class_="label")
        drawing.text(Spot(right + 4, y + 13), _us(each.us), 10, fill=_GREY, class_="value")
    return bottom + 30


def _strip(drawing: Drawing, top: float, segments: Sequence[_Segment], whole: float, most: int) -> float:
    """All segments end to end; all lines are equally long, and the time at which each begins stands in front."""
    lines = min(14, max(4, ceil(most / 22)))
    span = nice_step(whole / lines)
    used = max(1, ceil(_end(segments) / span * (1 - 1e-9)))
    scale = Linear(span, _MARGIN + 60, _WIDTH - _MARGIN - 22)
    lane, tall = 15.0, 22.0  # names above, bars below
    bottom = top + used * (lane + tall)
    ticks = list(scale.ticks(10))
    for number in range(used):
        y = top + number * (lane + tall) + lane
        drawing.rect(Box(scale.start, y, scale.end, y + tall), "#f6f6f6")
        drawing.text(Spot(scale.start - 8, y + 15, "end"), f"{number * span:,.6g}", _SMALL, class_="tick-y")
    for each in segments:
        for number, left, right in _pieces(each, span):
            y = top + number * (lane + tall) + lane
            edge = {"stroke": "#ffffff", "stroke_width": 0.5} if scale(right) - scale(left) > 3 else {}
            box = Box(scale(left), y, scale(right), y + tall)
            drawing.rect(box, each.colour, each.hover, **edge, class_="bar")
    _strip_labels(drawing, top, segments, span, scale, (lane, tall))
    for value, words in ticks:
        x = scale(value)
        drawing.line((x, bottom), (x, bottom + 4), stroke="#888888")
        drawing.text(Spot(x, bottom + 16, "middle"), f"+{words}", _SMALL, class_="tick-x")
    drawing.text(Spot(scale.start - 24, bottom + 16, "end"), "µs", _SMALL)
    return bottom + 30


def _end(segments: Sequence[_Segment]) -> float:
    return segments[-1].start + segments[-1].us if segments else 0.0


def _pieces(each: _Segment, span: float) -> Iterator[tuple[int, float, float]]:
    """Line and place on it, for every line that a segment touches."""
    start, end = each.start, each.start + each.us
    number = int(start / span)
    while start < end:
        stop = min(end, (number + 1) * span)
        if stop - start > 1e-9 * span:  # what rounding leaves over is no piece
            yield number, start - number * span, stop - number * span
        start, number = stop, number + 1


def _strip_labels(
    drawing: Drawing,
    top: float,
    segments: Sequence[_Segment],
    span: float,
    scale: Linear,
    sizes: tuple[float, float],
) -> None:
    """Names of the longest above their bars, as many as there is room for; on one line a name stands once."""
    lane, tall = sizes
    rooms: dict[int, Room] = {}
    said: set[tuple[int, str]] = set()
    for each in sorted(segments, key=lambda each: (-each.us, each.start)):
        number, left, right = max(_pieces(each, span), key=lambda piece: piece[2] - piece[1])
        if (number, each.name) in said:
            continue
        base, x = top + number * (lane + tall) + lane - 4, (scale(left) + scale(right)) / 2
        spots = [Spot(x, base, "middle"), Spot(x - 2, base), Spot(x + 2, base, "end")]
        room = rooms.setdefault(number, Room(Box(scale.start, top, scale.end, base + lane)))
        # A box wider than the words: names in one lane need more than a hair between them.
        spot = room.place(f"{each.name}  ", 10, spots)
        if spot is None:
            continue
        said.add((number, each.name))
        drawing.line((x, base + 2), (x, base + 5), stroke="#666666")
        drawing.text(spot, each.name, 10, hover=each.hover, class_="label")


# Chips beside each other.


def chips_svg(estimates: Mapping[str, Estimate | AneforgeError], title: str) -> str:
    """A bar for each chip with its interval, in the given order; a chip that refused the model gives its error."""
    drawing, top = _sheet(title, f"Estimated time of one call on {_count(len(estimates), 'chip')}, with intervals.")
    if not estimates:
        return drawing.svg(drawing.paragraph(top, "No chip was asked for.") + 10)
    found = [each for each in estimates.values() if isinstance(each, Estimate)]
    solid, pale = ("#4a9ccf", "#0072B2"), ("#cfe3f1", "#0072B2")
    entries = [(*solid, "fitted to measurements of the chip")] if any(e.basis.measured for e in found) else []
    entries += [(*pale, "extrapolated from another chip")] if any(not e.basis.measured for e in found) else []
    top = drawing.legend(top, entries) if entries else top
    columns = _Columns.of(estimates)
    tall = 22.0
    bottom = top + 4 + tall * len(estimates)
    for value, words in columns.scale.ticks(6):
        x = columns.scale(value)
        drawing.line((x, top), (x, bottom + 4), stroke=_GRID)
        drawing.text(Spot(x, bottom + 17, "middle"), words, _SMALL, class_="tick-x")
    drawing.text(Spot(columns.scale.start - 16, bottom + 17, "end"), "µs", _SMALL)
    for number, (label, each) in enumerate(estimates.items()):
        y = top + 4 + number * tall
        name = shortened(label, 12, columns.names)
        drawing.text(Spot(columns.scale.start - 8, y + 15, "end"), name, 12, class_="label")
        if isinstance(each, Estimate):
            fill, stroke = solid if each.basis.measured else pale
            columns.bar(drawing, y, tall, (label, each), fill, stroke)
        else:
            drawing.text(
                Spot(columns.scale.start + 4, y + 15),
                "no program",
                12,
                hover=f"{label}: {each}",
                fill=_GREY,
                font_style="italic",
                class_="refused",
            )
    drawing.line((columns.scale.start, top), (columns.scale.start, bottom + 4), stroke="#888888")
    top = bottom + 26
    if found:
        scopes = ", ".join(dict.fromkeys(each.scope for each in found))
        top = drawing.paragraph(
            top, f"Time of one call ({scopes}). The line is the interval that holds eight measurements of ten."
        )
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
        found = [each for each in estimates.values() if isinstance(each, Estimate)]
        names = min(200.0, max(text_width(label, 12) for label in estimates))
        values = max((text_width(_value(each), 12) for each in found), default=0.0)
        bases = min(170.0, max((text_width(_basis(each), _SMALL) for each in found), default=0.0))
        most = max((max(each.us, *each.interval) for each in found), default=0.0)
        start, end = _MARGIN + names + 8, _WIDTH - _MARGIN - bases - 14 - values - 14
        return cls(names, Linear(most if isfinite(most) and most > 0 else 1.0, start, end), end + 14 + values, bases)

    def bar(
        self, drawing: Drawing, y: float, tall: float, named: tuple[str, Estimate], fill: str, stroke: str
    ) -> None:
        label, each = named
        low, high = (self.scale(value) for value in each.interval)
        hover = f"{label}: {_totals(each)}; {each.basis.rule}"
        bar = Box(self.scale.start, y + 4, self.scale(each.us), y + tall - 4)
        drawing.rect(bar, fill, hover, stroke=stroke, stroke_width=0.8, class_="bar")
        middle = y + tall / 2
        drawing.line((low, middle), (high, middle), stroke_width=1.2, class_="whisker")
        for x in (low, high):
            drawing.line((x, middle - 4), (x, middle + 4), stroke_width=1.2)
        drawing.text(Spot(self.values, y + 15, "end"), _value(each), 12, class_="value")
        words = shortened(_basis(each), _SMALL, self.bases)
        drawing.text(Spot(self.values + 14, y + 15), words, _SMALL, fill=_GREY, class_="basis")


def _value(each: Estimate) -> str:
    return f"{_us(each.us)} µs"
