"""ONNX: the standard's ops, and those that onnxruntime adds."""

from __future__ import annotations

from aneforge.graph.ops.host import Evaluate, register_language


def _evaluator() -> Evaluate:
    from aneforge.formats.onnx.host import evaluate

    return evaluate


register_language("onnx", _evaluator)
