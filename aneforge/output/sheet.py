"""The sheet that all pictures are drawn on: its size, its title, and what small text looks like."""

from __future__ import annotations

from aneforge.output.svg import Drawing, Spot, shortened

WIDTH = 900.0
MARGIN = 20.0
GREY = "#555555"
SMALL = 11.0
BOLD = 1.13  # how much wider bold text is


def sheet(title: str, description: str) -> tuple[Drawing, float]:
    drawing = Drawing(WIDTH, title, description)
    drawing.text(Spot(MARGIN, 32), shortened(title, 18 * BOLD, WIDTH - 2 * MARGIN), 18, font_weight="bold")
    return drawing, 44.0
