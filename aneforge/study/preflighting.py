"""``af.preflight`` and ``af.preflight_all``: what one chip, or each of several, does with every node of a graph."""

from __future__ import annotations

from aneforge.chips import Family, Target
from aneforge.chips import target as find_target
from aneforge.chips.families import as_family
from aneforge.chips.names import newest_below_the_floor
from aneforge.formats.arguments import Chips, Source
from aneforge.study.preflight import Preflight
from aneforge.study.study import Study
from aneforge.text import ByChip

_CONVERSION = "conversion"


class PreflightAll(ByChip[Preflight]):
    """One graph against several chips, by the names that were asked."""


def preflight(out: Source, family: int | str | Target, route: str | None = _CONVERSION) -> Preflight:
    """Check a graph against one chip: a family (``Family.A13`` or its number), an architecture, or a chip's name.

    ``route`` is how the program reaches the chip: ``conversion`` (a model program handed to the compiler; nothing runs
    so below A13), ``direct`` (authored layers), or None for the one that ``af.compile`` takes by itself. The same
    route gives the same answer in ``af.compile``, ``cross_compile_check`` and ``aneforge check``.
    """
    # The oldest family has no representative; its newest chip answers for it.
    is_oldest = isinstance(family, int) and as_family(family) is Family.OLDER
    chip = newest_below_the_floor() if is_oldest else find_target(family)
    return Study(out, chip, route=route).preflights()[chip.name]


def preflight_all(out: Source, target: Chips = "all", route: str | None = _CONVERSION) -> PreflightAll:
    """The reports of :func:`preflight` for several chips, or for all 28 targets; ``af.check`` prints them."""
    return PreflightAll(Study(out, target, route=route).preflights())
