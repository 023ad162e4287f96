"""Stacks of equal layers: two programs at any depth, and the gradients of the whole graph."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.errors import AneforgeError


def layer(params, x):
    w, b = params
    return x + (x @ w + b).tanh()


def values(depth, seed=0):
    draw = np.random.default_rng(seed)
    return [(draw.standard_normal((4, 4)) * 0.3, draw.standard_normal((1, 4)) * 0.1) for _ in range(depth)]


def stored(layers):
    return [[array.astype(np.float16).astype(np.float64) for array in params] for params in layers]


def test_forward_and_backward_are_those_of_the_whole_graph():
    layers = values(5)
    stack = af.CheckpointedStack(layer, layers[0], (3, 4), target="m1")
    x, gradient = np.random.default_rng(1).standard_normal((3, 4)), np.ones((3, 4))
    out, checkpoints = stack.forward(layers, x)
    parts, by_input = stack.backward(layers, checkpoints, gradient)
    start = af.input((3, 4))
    flowing, params = start, []
    for w, b in stored(layers):
        params.append([af.parameter(w), af.parameter(b)])
        flowing = layer(params[-1], flowing)
    np.testing.assert_allclose(out, af.evaluate(flowing, [x]), rtol=0.02, atol=0.02)
    wanted = [start, *(param for pair in params for param in pair)]
    exact = af.backward_from(af.const(gradient), flowing, wanted)
    expected = [af.evaluate(exact[tensor], [x]) for tensor in wanted]
    found = [by_input, *(part for pair in parts for part in pair)]
    assert len(found) == len(expected) == 11
    for part, whole in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, whole, rtol=0.05, atol=0.05)


def test_the_number_of_programs_does_not_depend_on_the_depth(monkeypatch):
    import aneforge.train.stack as home

    compiled = []
    build = home.build
    monkeypatch.setattr(home, "build", lambda *words: compiled.append(words) or build(*words))
    stack = af.CheckpointedStack(layer, values(1)[0], (3, 4), target="m1")
    for depth in (1, 3, 30):
        _, checkpoints = stack.forward(values(depth), np.ones((3, 4)))
        parts, _ = stack.backward(values(depth), checkpoints, np.ones((3, 4)))
        assert len(parts) == depth
    assert len(compiled) == stack.programs == 2


def test_a_stack_learns_with_an_optimiser():
    layers = values(3)
    stack = af.CheckpointedStack(layer, layers[0], (3, 4), target="m5")
    params = [[af.parameter(array) for array in pair] for pair in layers]
    optimiser = af.SGD([param for pair in params for param in pair], 0.05, loss_scale=16.0)
    draw = np.random.default_rng(4)
    x, wanted = draw.standard_normal((3, 4)), draw.standard_normal((3, 4))
    losses = []
    for _ in range(30):
        now = optimiser.values
        stacked = [[now[param] for param in pair] for pair in params]
        out, checkpoints = stack.forward(stacked, x)
        losses.append(float(np.square(out - wanted).mean()))
        parts, _ = stack.backward(stacked, checkpoints, 16.0 * 2 * (out - wanted) / out.size)
        optimiser.step([part for pair in parts for part in pair])
    assert losses[-1] < losses[0] / 2


def test_convolution_weights_keep_their_kernel():
    weight = af.conv_param(np.random.default_rng(0).standard_normal((2, 2, 3, 3)))
    stack = af.CheckpointedStack(lambda params, x: af.conv2d(x, params[0], pad=1), [weight], (1, 2, 5, 5), target="m1")
    layers = [[weight.weight.array]] * 2
    out, checkpoints = stack.forward(layers, np.ones((1, 2, 5, 5)))
    assert out.shape == (1, 2, 5, 5)
    assert stack.backward(layers, checkpoints, out)[0][0][0].shape == (18, 2)
    stack.release()
    with pytest.raises(AneforgeError, match="was released"):
        stack.forward(layers, np.ones((1, 2, 5, 5)))


def test_bad_input_is_refused():
    layers = values(2)
    with pytest.raises(AneforgeError, match=r"layer_fn: it gave a tensor of \[3, 2\]; expected a tensor of io_shape"):
        af.CheckpointedStack(lambda params, x: x @ params[0], [np.ones((4, 2))], (3, 4), target="m1")
    with pytest.raises(AneforgeError, match="layer_fn: it gave a NoneType"):
        af.CheckpointedStack(lambda params, x: None, layers[0], (3, 4), target="m1")
    stack = af.CheckpointedStack(layer, layers[0], (3, 4), target="m1")
    for call, message in (
        (lambda: stack.backward(layers, [], np.ones((3, 4))), "checkpoints: 0 for 2 layers. Pass those that forward"),
        (lambda: stack.forward(layers, np.ones((2, 4))), r"x0: it has shape \[2, 4\]"),
        (lambda: stack.forward([], np.ones((3, 4))), "layers_params: the list is empty"),
        (lambda: stack.forward([layers[0], [np.ones((4, 4))]], np.ones((3, 4))), "layer 1 has parameters of"),
    ):
        with pytest.raises(AneforgeError, match=message):
            call()
