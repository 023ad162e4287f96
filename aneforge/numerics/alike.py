"""Chips that give the same numbers: those that have the same arithmetic and take the same ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from aneforge.sim.engine import Engine
from aneforge.targets.chip import Target


def one_of_each_arithmetic(chips: Mapping[str, Target]) -> dict[str, Target]:
    """The first chip of each kind, by the names that the chips have. A family is too coarse for this: an M4 and an M5
    are of one family and differ in tables, divisions and 3 x 3 convolutions."""
    firsts: dict[tuple[object, ...], tuple[str, Target]] = {}
    for name, chip in chips.items():
        engine = Engine.of(chip)
        rules = (getattr(engine, part.name) for part in fields(engine) if part.name != "target")
        firsts.setdefault((chip.family5, *rules), (name, chip))
    return dict(firsts.values())
