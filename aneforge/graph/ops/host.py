"""What the engine has no form for: ops of a model file that the host computes in float32, between engine regions.

Such an op keeps its source: a language (whose evaluator a frontend has) and a body in it. Integers exist here only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Shape, entry, make, op
from aneforge.graph.ops.leaf import shape_of

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

__all__ = ["EVALUATORS", "host"]

EVALUATORS = {
    "onnx": "aneforge.frontends.onnx_host",
    "torch": "aneforge.frontends.torch_host",
    "mil": "aneforge.frontends.coreml.host",
    "coreai": "aneforge.frontends.coreai_rules.host",
}
"""Which module computes the ops of each language: ``evaluate(kind, body, operands, output) -> array``."""

_HOLDS = {"fp16": np.float32, "bool": np.bool_, "int32": np.int64, "uint8": np.uint8}


@op("host", "*operands", "language kind body shape dtype output reason", dtypes="attribute")
class HOST:
    """An op of a model file that the host computes in float32, because the engine has no form for it."""

    @staticmethod
    def shape(*operands: Shape, shape, **_) -> Shape:
        return shape

    @staticmethod
    def reference(*operands, language, kind, body, shape, dtype, output, reason):
        found = np.asarray(_evaluator(language)(kind, body, list(operands), output))
        if found.shape != tuple(shape):
            raise ValueError(f"{kind} gave shape {list(found.shape)}, not {list(shape)}")
        return found.astype(_HOLDS[dtype])


@lru_cache
def _evaluator(language: str) -> Any:
    if language not in EVALUATORS:
        raise GraphError(f"no evaluator for {language!r}; there is {', '.join(EVALUATORS)}")
    return import_module(EVALUATORS[language]).evaluate


@entry
def host(
    operands: Sequence[Tensor],
    *,
    language: str,
    kind: str,
    body: str,
    shape: Sequence[int],
    dtype: str = "fp16",
    output: int = 0,
    reason: str,
) -> Tensor:
    """One result of an op that runs on the host: ``kind`` as the model's own language calls it, ``body`` all else that
    its evaluator needs, ``reason`` why it cannot be on the engine."""
    if language not in EVALUATORS:
        raise GraphError(f"no evaluator for {language!r}; there is {', '.join(EVALUATORS)}")
    attrs = {"language": language, "kind": kind, "body": body, "shape": shape_of(shape)}
    return make(HOST, operands, {**attrs, "dtype": dtype, "output": int(output), "reason": reason})
