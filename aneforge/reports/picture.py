"""``af.plot``: estimates of a model as a picture that a notebook shows and that can be saved."""

from __future__ import annotations

from collections.abc import Mapping

from aneforge.advice.estimates import Estimates, estimate_all
from aneforge.chips.names import chip_label
from aneforge.cost.estimate import Estimate
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, Source
from aneforge.reports.plots import chips_svg, roofline_svg, timeline_svg
from aneforge.svg import Picture

KINDS = {"roofline": "m1", "timeline": "m1", "chips": "macs,phones"}
"""The kinds of pictures, and the chips of each where none are named."""


def plot(
    model: Source,
    kind: str = "chips",
    target: Chips = None,
    scope: str | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Picture:
    """Draw the estimates of a model: ``chips`` beside each other, layers under the ``roofline``, or a ``timeline``.

    ``target`` names chips (macs and phones for ``chips``, an M1 for the others; at most four of those), ``scope`` is
    what a time covers. A notebook shows the picture; ``.save("times.svg")`` writes it.

    >>> import aneforge as af
    >>> picture = af.plot(af.input((1, 8, 32, 32)).relu(), "timeline", "m1")
    >>> picture.kind, picture.svg.startswith("<svg")
    ('timeline', True)
    """
    if kind not in KINDS:
        raise ArgumentError("kind", f"{kind!r} is not a kind of picture; choose one: {', '.join(KINDS)}.")
    estimates = estimate_all(model, target or KINDS[kind], scope, dims=dims, function=function)
    estimates.require()
    return picture_of(estimates, kind)


def picture_of(estimates: Estimates, kind: str) -> Picture:
    """One kind of picture of estimates that are there."""
    name = estimates.study.name
    labelled = {chip_label(chip): result for chip, result in estimates.in_order().items()}
    drawn = {label: result for label, result in labelled.items() if isinstance(result, Estimate)}
    if kind == "chips":
        return Picture(kind, chips_svg(labelled, f"{name}: estimated time of one call"))
    if kind == "timeline":
        return Picture(kind, timeline_svg(drawn, f"{name}: estimated time by layer"))
    return Picture(kind, roofline_svg(drawn, f"{name}: layers and roofline"))
