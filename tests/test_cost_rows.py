"""A layer takes as long in a user's graph as in a row of measurements that describes it: the constants are fitted to
rows, and a rule that no graph reaches would time nobody's model."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.cost.evaluate import predict

CHIPS = ("M2 Pro", "M5 Pro")
SLACK = 0.07  # layers are tiled and padded in a program, and not in a row


def image(*shape):
    return af.input(shape, name="x")


def ones(*shape):
    return np.ones(shape, np.float16)


def conv(channels, size, kernel):
    shape = {"n": 1, "cin": channels, "cout": channels, "h": size, "w": size, "kh": kernel, "kw": kernel}
    layer = {"op": "conv", **shape, "stride": 1, "pad": [kernel // 2, kernel // 2]}
    return layer, af.conv(image(1, channels, size, size), ones(channels, channels, kernel, kernel), pad=kernel // 2)


def planar(op, build, shape, out_shape=None, **more):
    layer = {"op": op, "shape": list(shape), **more}
    return {**layer, "out_shape": list(out_shape)} if out_shape else layer, build(image(*shape))


CASES = {
    "a convolution of 3x3": conv(128, 32, 3),
    "a convolution of 1x1": conv(256, 64, 1),
    "a linear layer": (
        {"op": "linear", "m": 256, "k": 1024, "n": 1024},
        af.linear(image(256, 1024), ones(1024, 1024)),
    ),
    "gelu": planar("ew", lambda x: x.gelu(), (256, 4096), fn="gelu", n_in=1),
    "softmax": planar("softmax", lambda x: x.softmax(-1), (512, 1024)),
    "a layer norm": planar("layer_norm", lambda x: x.layer_norm(ones(1024), ones(1024)), (256, 1024)),
    "an RMS norm": planar("rms_norm", lambda x: x.rms_norm(ones(1024)), (256, 1024)),
    "an L2 norm": planar("l2_norm", lambda x: x.l2_norm(-1), (256, 1024)),
    "a group norm": planar(
        "group_norm", lambda x: x.group_norm(ones(256), ones(256), 32), (1, 256, 64, 64), groups=32
    ),
    "a sum": planar("reduce_sum", lambda x: x.sum(1), (256, 4096), (256,), axis=1),
    "the five largest of one row": planar("topk", lambda x: af.topk(x, 5), (1, 2048), (1, 5)),
    "the five largest of eight rows": planar("topk", lambda x: af.topk(x, 5), (8, 1024), (8, 5)),
    "the largest": planar("argmax", lambda x: x.argmax(-1), (1, 128), (1, 1)),
    "a maximum pool": planar(
        "max_pool", lambda x: x.max_pool(2, 2), (1, 256, 32, 32), (1, 256, 16, 16), k=2, stride=2
    ),
    "a pixel shuffle": planar("pixel_shuffle", lambda x: af.pixel_shuffle(x, 2), (1, 256, 32, 32)),
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", CASES)
def test_a_graph_is_timed_as_the_row_that_describes_it(name, chip):
    layer, out = CASES[name]
    shapes = {"inputs": [list(node.shape) for node in af.Graph([out]).inputs], "outputs": [list(out.shape)]}
    row = {"chip": chip, "scope": "host_call", "layers": [layer], **shapes}
    timed = af.estimate_all(out, chip, scope="host_call", changes=0).only
    assert timed.us == pytest.approx(predict(row), rel=SLACK)


def test_a_converted_rms_norm_takes_as_long_as_its_layers():
    """U136: published times are of programs authored layer by layer only."""
    out = image(256, 1024).rms_norm(ones(1024))
    direct, converted = (
        af.estimate_all(out, "m5 pro", scope=scope, changes=0).only.engine_us for scope in ("host_call", "coreml_call")
    )
    assert direct > 20 * converted
