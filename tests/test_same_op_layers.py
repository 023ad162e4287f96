# pyright: basic, reportMissingImports=false
"""Layers with weights, sizes and windows: one graph and the same bits on M1 and M5 from ONNX and from MIL."""

from __future__ import annotations

import numpy as np
import pytest
from same_op_kit import assert_same
from same_op_rows import LAYERS, one, onnx_graph

import aneforge as af
from aneforge.formats import coreml

kit = pytest.importorskip("coreml_kit")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", [name for name, layer in LAYERS.items() if layer.mil is not None])
def test_onnx_and_mil_give_one_graph(tmp_path, name):
    layer = LAYERS[name]
    package = kit.package(tmp_path, lambda x: layer.mil(kit.mb, x), layer.feeds())
    assert_same(coreml.read(package), onnx_graph(tmp_path, layer), layer.feeds(), layer.chips)


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
def test_a_norm_pool_rounded_up_is_the_norm_of_its_windows(tmp_path, pads):
    """ONNX's reference and coremltools' rule for the number of windows: the last one starts inside the image."""
    layer = one("LpPool", kernel_shape=[3, 3], strides=[2, 2], pads=pads, ceil_mode=1, p=2, shape=(1, 4, 6, 7))
    (x,) = layer.feeds()
    graph = onnx_graph(tmp_path, layer)
    top, left, bottom, right = pads
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (top, bottom + 2), (left, right + 2)])
    rows, columns = graph.outputs[0].shape[2:]
    assert rows == -(-(6 + top + bottom - 3) // 2) + 1
    assert columns == -(-(7 + left + right - 3) // 2) + 1
    wanted = [
        [np.sqrt(np.square(wide[..., 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]).sum((2, 3))) for j in range(columns)]
        for i in range(rows)
    ]
    expected = np.moveaxis(np.array(wanted), (0, 1), (2, 3))
    np.testing.assert_allclose(af.evaluate(graph, [x])[0], expected, rtol=1e-3)
    for chip in layer.chips:
        np.testing.assert_allclose(np.asarray(af.compile(graph, target=chip)(x)), expected, rtol=2e-3)


def test_every_layer_is_compared_somewhere():
    """Rows without MIL have PyTorch's: tests/torch/test_same_op_torch.py."""
    assert len(LAYERS) >= 36
    assert sum(layer.mil is not None for layer in LAYERS.values()) >= 22
