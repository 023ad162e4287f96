"""Layers along time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from aneforge.cost.estimate import CallSpan, Estimate
from aneforge.reports.plots.chips import (
    CALL,
    COPIES,
    CROSSING,
    GRID,
    HOST,
    band_text,
    by_chip,
    colours_of,
    hover,
    layer_name,
    shares,
    totals,
    us_text,
)
from aneforge.svg import (
    BOLD,
    GREY,
    MARGIN,
    SMALL,
    WIDTH,
    Box,
    Drawing,
    Linear,
    Room,
    Spot,
    nice_step,
    sheet,
    shortened,
)
from aneforge.text import plural

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
    chips = by_chip(estimate, "timeline")
    drawing, top = sheet(title, f"Time of one call on {', '.join(chips)}, layer by layer in order.")
    colours = colours_of(list(chips.values()))
    entries = [(CALL, "none", "starting the call"), (COPIES, "none", "copying inputs and outputs")]
    if any(estimate.parts for estimate in chips.values()):
        entries += [(HOST, "none", "on the host, the middle of a band"), (CROSSING, "none", "change of device")]
    entries += [(colour, "none", f"bound by {bound}") for bound, colour in colours.items()]
    top = drawing.legend(top, entries)
    segments = {label: _segments(estimate, colours) for label, estimate in chips.items()}
    whole = max((line[-1].start + line[-1].us for line in segments.values() if line), default=0.0) or 1.0
    in_rows = sum(len(line) for line in segments.values()) <= _MOST_ROWS
    for label, chip_estimate in chips.items():
        drawing.text(Spot(MARGIN, top + 16), shortened(label, 14 * BOLD, WIDTH - 2 * MARGIN), 14, font_weight="bold")
        top = drawing.paragraph(top + 21, _timeline_caption(chip_estimate)) + 6
        if in_rows:
            top = _rows(drawing, top, segments[label], whole)
        else:
            top = _strip(drawing, top, segments[label], whole, max(len(line) for line in segments.values()))
    return drawing.svg(top + 10)


def _segments(estimate: Estimate, colours: Mapping[str, str]) -> list[_Segment]:
    """Every piece of a call that takes time, with its name and colour."""
    segments: list[_Segment] = []
    start = 0.0
    for span in estimate.spans():
        if span.us > 0:
            name, colour, words = _shown(span, colours)
            segments.append(_Segment(start, span.us, name, colour, words))
            start += span.us
    return segments


def _shown(span: CallSpan, colours: Mapping[str, str]) -> tuple[str, str, str]:
    """The name of a piece, its colour, and what is said where the pointer rests on it."""
    part, us = span.part, us_text(span.us)
    if span.layer is not None:
        return layer_name(span.layer), colours[span.layer.bound], hover(span.layer)
    if part is not None and span.kind == "crossing":
        words = f"{'host to engine' if part.device == 'engine' else 'engine to host'}"
        return words, CROSSING, f"{words}: {us} µs"
    if part is not None and span.kind == "host":
        words = f"region {part.number}, {plural(part.ops, 'op')} on the host: {band_text(part.interval)}, assumed"
        return f"host region {part.number}", HOST, words
    of_region = f" of region {part.number}" if part is not None else ""
    if span.kind == "copies":
        return f"copies{of_region}", COPIES, f"copying inputs and outputs{of_region}: {us} µs"
    return f"call{of_region}" if of_region else "the call", CALL, f"starting the call{of_region}: {us} µs"


def _timeline_caption(estimate: Estimate) -> str:
    if estimate.parts:
        return f"{totals(estimate)}: {estimate.in_words()}. On the engine bound by: {shares(estimate)}."
    still = sum(layer.us <= 0 for layer in estimate.layers)
    around = max(0.0, estimate.us - estimate.engine_us)
    words = (
        f"{totals(estimate)}: {us_text(around)} µs around the engine ({estimate.scope}), drawn first; "
        f"{us_text(estimate.engine_us)} µs on it in {plural(len(estimate.layers), 'layer')}"
    )
    if still:
        words += f", {still} of which take{'s' if still == 1 else ''} no time"
    return f"{words}. Bound by: {shares(estimate)}."


def _rows(drawing: Drawing, top: float, segments: Sequence[_Segment], whole: float) -> float:
    """A row for each segment, its name in front and its time behind."""
    tall, names = 18.0, 170.0
    scale = Linear(whole, MARGIN + names, WIDTH - MARGIN - 52)
    bottom = top + tall * len(segments)
    for value, words in scale.ticks():
        x = scale(value)
        drawing.line((x, top), (x, bottom + 4), stroke=GRID)
        drawing.text(Spot(x, bottom + 17, "middle"), words, SMALL, class_="tick-x")
    drawing.text(Spot(scale.start - 16, bottom + 17, "end"), "µs", SMALL)
    for number, segment in enumerate(segments):
        y = top + number * tall
        left, right = scale(segment.start), scale(segment.start + segment.us)
        drawing.rect(Box(left, y + 3, right, y + tall - 3), segment.colour, segment.hover, class_="bar")
        drawing.text(Spot(MARGIN + names - 8, y + 13, "end"), segment.name, SMALL, class_="label")
        drawing.text(Spot(right + 4, y + 13), us_text(segment.us), 10, fill=GREY, class_="value")
    return bottom + 30


def _strip(drawing: Drawing, top: float, segments: Sequence[_Segment], whole: float, most: int) -> float:
    """All segments end to end; all lines are equally long, and the time at which each begins stands in front."""
    lines = min(14, max(4, ceil(most / 22)))
    span = nice_step(whole / lines)
    used = max(1, ceil(_end(segments) / span * (1 - 1e-9)))
    scale = Linear(span, MARGIN + 60, WIDTH - MARGIN - 22)
    lane, tall = 15.0, 22.0  # names above, bars below
    bottom = top + used * (lane + tall)
    ticks = list(scale.ticks(10))
    for number in range(used):
        y = top + number * (lane + tall) + lane
        drawing.rect(Box(scale.start, y, scale.end, y + tall), "#f6f6f6")
        drawing.text(Spot(scale.start - 8, y + 15, "end"), f"{number * span:,.6g}", SMALL, class_="tick-y")
    for segment in segments:
        for number, left, right in _pieces(segment, span):
            y = top + number * (lane + tall) + lane
            edge = {"stroke": "#ffffff", "stroke_width": 0.5} if scale(right) - scale(left) > 3 else {}
            box = Box(scale(left), y, scale(right), y + tall)
            drawing.rect(box, segment.colour, segment.hover, **edge, class_="bar")
    _strip_labels(drawing, top, segments, span, scale, (lane, tall))
    for value, words in ticks:
        x = scale(value)
        drawing.line((x, bottom), (x, bottom + 4), stroke="#888888")
        drawing.text(Spot(x, bottom + 16, "middle"), f"+{words}", SMALL, class_="tick-x")
    drawing.text(Spot(scale.start - 24, bottom + 16, "end"), "µs", SMALL)
    return bottom + 30


def _end(segments: Sequence[_Segment]) -> float:
    return segments[-1].start + segments[-1].us if segments else 0.0


def _pieces(segment: _Segment, span: float) -> Iterator[tuple[int, float, float]]:
    """Line and place on it, for every line that a segment touches."""
    start, end = segment.start, segment.start + segment.us
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
    labelled: set[tuple[int, str]] = set()
    for segment in sorted(segments, key=lambda segment: (-segment.us, segment.start)):
        number, left, right = max(_pieces(segment, span), key=lambda piece: piece[2] - piece[1])
        if (number, segment.name) in labelled:
            continue
        base, x = top + number * (lane + tall) + lane - 4, (scale(left) + scale(right)) / 2
        spots = [Spot(x, base, "middle"), Spot(x - 2, base), Spot(x + 2, base, "end")]
        room = rooms.setdefault(number, Room(Box(scale.start, top, scale.end, base + lane)))
        # A box wider than the words: names in one lane need more than a hair between them.
        spot = room.place(f"{segment.name}  ", 10, spots)
        if spot is None:
            continue
        labelled.add((number, segment.name))
        drawing.line((x, base + 2), (x, base + 5), stroke="#666666")
        drawing.text(spot, segment.name, 10, hover=segment.hover, class_="label")
