# pyright: basic, reportMissingImports=false
"""Layers with weights, sizes and windows: one graph and the same bits on M1 and M5 from ONNX and from MIL."""

from __future__ import annotations

import pytest
from same_op_kit import assert_same
from same_op_rows import LAYERS, onnx_graph

from aneforge.frontends import coreml

kit = pytest.importorskip("coreml_kit")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", [name for name, layer in LAYERS.items() if layer.mil is not None])
def test_onnx_and_mil_give_one_graph(tmp_path, name):
    layer = LAYERS[name]
    package = kit.package(tmp_path, lambda x: layer.mil(kit.mb, x), layer.feeds())
    assert_same(coreml.read(package), onnx_graph(tmp_path, layer), layer.feeds(), layer.chips)


def test_every_layer_is_compared_somewhere():
    """Rows without MIL have PyTorch's: tests/torch/test_same_op_torch.py."""
    assert len(LAYERS) >= 36
    assert sum(layer.mil is not None for layer in LAYERS.values()) >= 22
