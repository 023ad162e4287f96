"""A machine's copies are told from the times of one relu (C73)."""

from __future__ import annotations

import pytest

import aneforge as af
from aneforge.cli.measure_machine import run
from aneforge.cost.machines import Relu, measured_copies
from aneforge.errors import AneforgeError


def relu_times(rate_gbs: float, start: float, sizes: tuple[int, ...], target: str = "m4") -> list[Relu]:
    estimates = [af.partition(af.input((size,)).relu(), target).estimate("device_task").engine_us for size in sizes]
    return [Relu(size, start + 4e-3 * size / rate_gbs + us) for size, us in zip(sizes, estimates, strict=True)]


@pytest.mark.parametrize("rate", [1.5, 8.0, 20.0])
def test_copies_are_read_from_the_times_of_one_relu(rate: float) -> None:
    calls = relu_times(rate, 120.0, tuple(2**power for power in range(14, 24, 2)))
    odd = [*calls[:3], Relu(2**19, 9e5), *calls[3:]]
    for given in (calls, odd):
        machine = measured_copies(given, "m4")
        assert machine.copy_gbs == pytest.approx(rate, rel=0.15)
    assert machine.start_us == pytest.approx(120, rel=0.2)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (["16384:151"], "too close"),
        (["16384:151", "20000:160"], "too close"),
        (["16384:151", "262144:120"], "hardly longer"),
        (["16384:151", "262144:-3"], "is not a time"),
        (["16384:nan", "262144:3"], "is not a time"),
        (["16384", "262144:3"], "is not a time"),
    ],
)
def test_times_that_say_nothing_of_a_machine_are_refused(times: list[str], words: str) -> None:
    with pytest.raises(AneforgeError, match=words):
        run(times, "m4", as_json=False)
