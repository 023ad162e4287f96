"""``aneforge measure machine``: how fast a host copies, from the times of one relu."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge import text
from aneforge.cost.machines import RELU_FORM, Relu, measured_copies
from aneforge.errors import AneforgeError


def run(times: Sequence[str], target: str, as_json: bool) -> None:
    machine = measured_copies([_relu(words) for words in times], target)
    if as_json:
        print(text.as_json(machine.to_json()))
        return
    rows = [(f"{call.elements:,}", f"{call.us:,.0f}", f"{us:,.0f}") for call, us in machine.calls]
    print(text.columns(("elements", "measured us", "by this rate"), rows))
    print(
        f"\n{machine.label}: the host copies {machine.copy_gbs:.1f} GB/s; a call starts in {machine.start_us:,.0f} us"
    )
    if machine.assumed_gbs:
        print(f"aneforge assumes {machine.assumed_gbs:.1f} GB/s for an {machine.label} where nobody says")
    print(f"use it: aneforge estimate MODEL --target {machine.target} --copy-gbs {machine.copy_gbs:.1f}")


def _relu(words: str) -> Relu:
    elements, _, us = words.partition(":")
    try:
        return Relu(int(elements), float(us))
    except ValueError:
        raise AneforgeError(f"{words!r} is not a time; {RELU_FORM}") from None
