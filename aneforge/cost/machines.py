"""The machine around the engine: how fast the host copies, where somebody says it or has published it."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, sqrt
from typing import TYPE_CHECKING

from aneforge.chips import store
from aneforge.errors import ArgumentError, UnknownNameError

if TYPE_CHECKING:
    from aneforge.cost.constants import Basis


def copy_rate(machine: str | None, copy_gbs: float | None) -> float | None:
    """GB/s of the host's copies: as measured, or the middle of what is published of a machine by name (C73)."""
    if machine is not None and copy_gbs is not None:
        raise ArgumentError("copy_gbs", "a machine and a measured rate say the same twice. Give one of them.")
    if machine is not None:
        known = store.load("products")["machines"]
        names = {name.lower(): record for name, record in known.items()}
        if machine.lower() not in names:
            raise UnknownNameError(
                f"{machine!r}: no copy rate of this machine is known; choose one: {', '.join(known)}"
            )
        low, high = names[machine.lower()]["v"]
        return sqrt(low * high)
    if copy_gbs is not None and not (
        isinstance(copy_gbs, (int, float)) and not isinstance(copy_gbs, bool) and isfinite(copy_gbs) and copy_gbs > 0
    ):
        raise ArgumentError("copy_gbs", f"{copy_gbs!r} is not a rate. Give GB/s, more than zero.")
    return copy_gbs


def with_copies(basis: Basis, copy_gbs: float | None) -> Basis:
    """A basis with the copies of a known machine. Its host is then no longer one that nobody measured."""
    if copy_gbs is None:
        return basis
    rate = copy_gbs * 1e3  # bytes per microsecond
    chip = {**basis.constants.chip, "host_in": rate, "host_out": rate, "coreml_io": rate}
    left_out = store.load("cost_fit")["widths"]["sources"]
    widths = {
        kind: replace(width, host=min(width.host, left_out[kind]["host"])) for kind, width in basis.widths.items()
    }
    rule = f"{basis.rule}; the host copies {copy_gbs:g} GB/s, as given"
    constants = replace(basis.constants, chip=chip)
    return replace(basis, constants=constants, widths=widths, rule=rule, copies_are_given=True)
