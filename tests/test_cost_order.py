"""A newer chip that is slower than an older one of its line is named, with the cause."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.chips.names import chip_label
from aneforge.cost.order import Timed, slower_and_newer
from aneforge.study.programs import compile_all


def product(rows: int, inputs: int, outputs: int) -> af.Graph:
    weight = np.broadcast_to(np.float16(0.01), (outputs, inputs))
    return af.Graph([af.input((rows, inputs)).linear(weight)])


def deep_kernel() -> af.Graph:
    kernel = np.broadcast_to(np.float16(0.01), (512, 1024, 3, 3))
    return af.Graph([af.conv(af.input((1, 1024, 26, 26)), kernel, pad=1)])


@pytest.mark.parametrize(
    ("graph", "chips", "cause"),
    [
        (deep_kernel(), ["m3", "m4"], "C74"),
        (product(1, 4096, 4096), ["m2", "m3"], "C69"),
        (product(1, 4096, 4096), ["A16 Bionic", "A17 Pro"], "C69"),
        (product(1, 2048, 8192), ["m4", "m5"], "stream more slowly on it (C69)"),  # both have it, at other rates
    ],
)
def test_the_cause_is_the_constant_that_makes_the_difference(graph: af.Graph, chips: list[str], cause: str) -> None:
    estimates = af.estimate_all(graph, chips, "device_task", changes=0)
    (slower,) = estimates.slower_and_newer
    assert (slower.older, slower.newer) == tuple(estimates)
    assert cause in slower.because
    assert f"is slower than {chip_label(slower.older)}" in str(estimates).replace("\n  ", " ")
    assert estimates.to_json()["slower_and_newer"] == [slower._asdict()]


def test_chips_of_different_lines_are_not_compared() -> None:
    graph = product(1, 4096, 4096)
    assert not af.estimate_all(graph, ["m2-max", "m3"], "device_task", changes=0).slower_and_newer


def test_what_is_as_fast_or_faster_needs_no_cause() -> None:
    estimates = af.estimate_all(product(1, 1000, 1000), ["m1", "m2"], "device_task", changes=0)
    programs = compile_all(product(1, 1000, 1000), ["m1", "m2"])
    models = {name: Timed(one, [programs[one.basis.target.name]]) for name, one in estimates.items()}
    assert not slower_and_newer(models)


@pytest.mark.parametrize(("small", "large"), [("m1", "m1-max"), ("m2", "m2-pro"), ("m2", "m2-max"), ("m5", "m5-pro")])
def test_a_larger_chip_of_a_generation_copies_no_more_slowly_in_an_app(small: str, large: str) -> None:
    """What one tool's copies cost is its own, and no property of the machine that it ran on (C73)."""
    x = af.input((1, 8, 1024, 1024))
    estimates = af.estimate_all(af.Graph([x + x]), [small, large], "coreml_call", changes=0)
    first, second = (one.us for one in estimates.values())
    assert second <= 1.1 * first
