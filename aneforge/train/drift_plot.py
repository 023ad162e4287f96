"""A picture of a parity experiment: how far the weights of each chip are from those of the first, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.svg import MARGIN, SMALL, WIDTH, Box, Drawing, Linear, Log, Room, Spot, sheet
from aneforge.train.parity import Parity, TrainingRun

# Okabe and Ito's colours, which the common kinds of colour blindness keep apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_GRID = "#e4e4e4"
_LEFT = MARGIN + 64


def drift_svg(parity: Parity, title: str = "Drift of trained weights between chips") -> str:
    """Two panels over the steps: the largest difference from the reference chip, and the loss of every chip."""
    runs = list(parity.runs.values())
    reference = runs[0].chip if runs else "no chip"
    drawing, top = sheet(title, f"Largest difference of a weight from {reference}, and the loss, after each step.")
    steps = max((len(run.losses) for run in runs), default=0)
    if not steps:
        return drawing.svg(drawing.paragraph(top, "No step was trained.") + 10)
    x = Linear(max(steps, 1), _LEFT, WIDTH - MARGIN - 70)
    colours = {run.chip: _COLOURS[place % len(_COLOURS)] for place, run in enumerate(runs)}
    entries = []
    for place, run in enumerate(runs):
        first = "" if run.first_difference is None else f", differs from step {run.first_difference}"
        same = ", same bits" if place and run.first_difference is None else ""
        accuracy = "" if run.accuracy is None else f", accuracy {run.accuracy:.4f}"
        entries.append((colours[run.chip], colours[run.chip], f"{run.chip}{accuracy}{first}{same}"))
    top = drawing.legend(top, entries) + 6
    drifting = [run for run in runs[1:] if any(run.drift)]
    if drifting:
        top = _panel(drawing, top, f"largest difference of a weight from {reference}", x, drifting, colours, "drift")
    else:
        top = drawing.paragraph(top, f"Every chip has the same weights as {reference} after every step.") + 8
    top = _panel(drawing, top, "loss", x, runs, colours, "losses")
    return drawing.svg(top + 10)


def _panel(
    drawing: Drawing,
    top: float,
    title: str,
    x: Linear,
    runs: Sequence[TrainingRun],
    colours: dict[str, str],
    what: str,
) -> float:
    """One frame with a line for each chip, on a logarithmic scale; returns where it ends."""
    drawing.text(Spot(MARGIN, top + 12), title, 12, font_weight="bold")
    frame = Box(x.start, top + 22, x.end, top + 202)
    series = {run.chip: [(step, value) for step, value in enumerate(getattr(run, what), 1)] for run in runs}
    positive = [value for points in series.values() for _, value in points if value > 0]
    low, high = min(positive), max(positive)
    y = Log(low / 1.3, high * 1.3, frame.bottom, frame.top)
    for value, words in y.ticks(6):
        place = y(value)
        drawing.line((frame.left, place), (frame.right, place), stroke=_GRID)
        drawing.text(Spot(frame.left - 6, place + 4, "end"), words, SMALL, class_="tick-y")
    for value, words in x.ticks(8):
        place = x(value)
        drawing.line((place, frame.top), (place, frame.bottom), stroke=_GRID)
        drawing.text(Spot(place, frame.bottom + 16, "middle"), words, SMALL, class_="tick-x")
    drawing.text(Spot(frame.right, frame.bottom + 32, "end"), "step", SMALL)
    drawing.rect(frame, "none", stroke="#888888")
    room = Room(Box(frame.right, frame.top - 8, drawing.width, frame.bottom + 12))
    for chip, points in series.items():
        shown = [(x(step), y(value)) for step, value in points if value > 0]
        written = " ".join(f"{left:.1f},{down:.1f}" for left, down in shown)
        drawing.mark("polyline", chip, points=written, fill="none", stroke=colours[chip], stroke_width=1.4)
        end = shown[-1]
        spots = [Spot(frame.right + 6, end[1] + 4 + shift) for shift in (0, 12, -12, 24, -24, 36, -36)]
        spot = room.place(chip, SMALL, spots)
        if spot is not None:
            drawing.text(spot, chip, SMALL, fill=colours[chip], class_="label")
    return frame.bottom + 44
