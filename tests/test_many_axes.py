"""Tensors of more axes than the engine has: what an import makes of them, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats.importer.many_axes import with_few_axes
from aneforge.graph.node import MAX_RANK, many_axes

RNG = np.random.default_rng(5)
SHAPE = (1, 3, 2, 4, 2, 5)


def wide(x: af.Tensor) -> af.Tensor:
    return x.reshape(*SHAPE)


CASES = {
    "transpose": lambda x: wide(x).transpose([0, 2, 4, 1, 3, 5]),
    "transpose of everything": lambda x: wide(x).transpose([5, 4, 3, 2, 1, 0]),
    "a function": lambda x: wide(x).exp(),
    "a sum of two": lambda x: wide(x) + wide(x * 2.0),
    "a sum with a line": lambda x: wide(x) + af.const(np.arange(5.0)),
    "a sum with columns": lambda x: wide(x) * af.const(RNG.standard_normal((3, 1, 4, 1, 1))),
    "a comparison": lambda x: af.where(wide(x).greater(0.0), wide(x), af.const(np.full((1,) * 6, 0.5))),
    "a mean": lambda x: wide(x).mean([2, 4]),
    "a mean of the end": lambda x: wide(x).mean([4, 5]),
    "a maximum": lambda x: wide(x).amax(3),
    "softmax": lambda x: wide(x).softmax(3),
    "a running sum": lambda x: wide(x).cumsum(3),
    "slices": lambda x: wide(x).slice_by_size([0, 1, 0, 1, 0, 2], [1, 2, 2, 2, 1, 3]),
    "a picked axis": lambda x: af.gather(wide(x), [2, 0], axis=1),
    "copies": lambda x: wide(x).tile([2, 1, 1, 1, 3, 1]),
    "backwards": lambda x: wide(x).reverse([1, 3]),
    "joined": lambda x: af.concat([wide(x), wide(x * 2.0)], axis=3),
    "padded": lambda x: wide(x).pad([(0, 0), (1, 0), (0, 0), (0, 2), (0, 0), (0, 0)]),
    "layer norm": lambda x: wide(x).layer_norm(np.ones(5), np.zeros(5)),
    "dense": lambda x: wide(x).linear(RNG.standard_normal((7, 5)).astype(np.float16)),
    "product": lambda x: wide(x) @ wide(x).transpose([0, 1, 2, 3, 5, 4]),
    "product, repeated": lambda x: wide(x) @ af.const(RNG.standard_normal((1, 3, 1, 1, 5, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers_with_few_axes(name):
    data = RNG.standard_normal((6, 40)).astype(np.float16)
    with many_axes():
        many = CASES[name](af.input((6, 40)))
        out = many.reshape(many.size)
        want = af.evaluate(out, [data])
        graph = with_few_axes(af.Graph([out]), "model")
    assert max(node.ndim for node in graph.nodes) <= MAX_RANK
    np.testing.assert_allclose(af.evaluate(graph.outputs[0], [data]), want, rtol=1e-12, atol=1e-12)


def test_axes_move_block_by_block():
    for _ in range(40):
        extents = [int(extent) for extent in RNG.integers(1, 4, RNG.integers(6, 9))]
        first, second = ([int(axis) for axis in RNG.permutation(len(extents))] for _ in range(2))
        numbers = RNG.standard_normal(extents)
        with many_axes():
            moved = af.input([numbers.size]).reshape(*extents).transpose(first).transpose(second)
            graph = with_few_axes(af.Graph([moved.reshape(numbers.size)]), "model")
        wanted = numbers.transpose(first).transpose(second).reshape(-1)
        assert np.array_equal(af.evaluate(graph.outputs[0], [numbers.reshape(-1)]), wanted)
        assert all(node.ndim <= MAX_RANK for node in graph.nodes)


def test_without_an_import_the_limit_holds():
    with pytest.raises(af.GraphError, match="has rank 6; no engine takes more than 5"):
        af.input((6, 40)).reshape(*SHAPE)
    with many_axes():
        af.input((6, 40)).reshape(*SHAPE)
    with pytest.raises(af.GraphError, match="has rank 6"):  # the shape is known by now, and still refused
        af.input((6, 40)).reshape(*SHAPE)


def test_what_cannot_be_folded_is_named():
    with many_axes():
        graph = af.Graph([wide(af.input((6, 40)).named("x")).named("tall")])
        with pytest.raises(LoadError, match=r"output 'tall' has 6 axes.*Reshape it"):
            with_few_axes(graph, "model")
