"""ONNX: the standard's ops, and those that onnxruntime adds."""

from __future__ import annotations

from aneforge.graph.ops.host import register_language

register_language("onnx", "aneforge.frontends.onnx.host")
