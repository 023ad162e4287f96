"""What all pictures of estimates share: the colours, and numbers in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aneforge.cost.estimate import Estimate, LayerEstimate
from aneforge.errors import AneforgeError
from aneforge.output.sheet import SMALL
from aneforge.output.svg import shortened
from aneforge.output.text import plural
from aneforge.targets.names import chip_label

MOST_PANELS = 4
"""Chips that a roofline or a timeline shows at most; more would not be read."""

# Okabe and Ito's colours, which the common kinds of colour blindness keep apart.
_COLOURS = {"compute": "#0072B2", "weights": "#D55E00", "activations": "#009E73", "dispatch": "#CC79A7"}
_OTHER_COLOURS = ("#E69F00", "#56B4E9", "#000000")
CALL = "#999999"
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
    if estimate.basis.measured:
        return plural(estimate.basis.rows, "measurement")
    return f"factors of {estimate.basis.taken_from}"


def totals(estimate: Estimate) -> str:
    low, high = estimate.interval
    kind = "fitted to" if estimate.basis.measured else "extrapolated"
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
