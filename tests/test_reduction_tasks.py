"""Reductions over every axis as tasks, read back from the registers alone, to the bit, in every generation."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import aneforge as af
from aneforge.codegen.container import read_container
from aneforge.codegen.decoding import decode
from aneforge.codegen.dialect import written_generations
from aneforge.codegen.emission import emit
from aneforge.study.model import Model

rng = np.random.default_rng(3839)
SHAPES = [(1, 24, 6, 10), (1, 1, 12, 40), (1, 64, 8, 8), (1, 40, 1, 33), (1, 33, 1, 1), (1, 16, 32, 16)]
AXES = [(1,), (2,), (3,), (2, 3), (1, 2, 3)]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("generation", written_generations())
def test_reductions_come_back_from_the_registers(generation, axes):
    written = 0
    for shape in SHAPES:
        if any(shape[axis] == 1 for axis in axes):
            continue
        x = af.input(shape, name="x")
        feeds = {"x": (0.5 * rng.normal(size=shape)).astype(np.float16)}
        for reduced in (x.sum(axes), x.mean(axes), x.amax(axes)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = af.compile(reduced.named("y"), target=generation, _check_precision=False)
            container = emit(model.program)
            assert container.record is not None
            if container.record.not_expressed:
                continue
            again = decode(read_container(container.to_bytes()), registers_only=True)
            (expected,) = model.run(feeds).outputs.values()
            (found,) = Model(model.graph, again).run(feeds).outputs.values()
            assert found.tobytes() == expected.tobytes(), (shape, axes)
            written += 1
    assert written >= {(1,): 9, (2,): 9, (3,): 12, (2, 3): 9, (1, 2, 3): 3}[axes]
