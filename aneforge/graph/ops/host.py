"""Ops of a model file without a form on the engine: the host computes them in float32, between engine regions.

Such an op keeps its source: a language and a body in it. The reader of a language registers how its ops are computed,
with :func:`register_language`; a graph can be built and saved without that. Only these ops take integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Shape, entry, make, op
from aneforge.graph.ops.leaf import shape_of

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

Evaluate = Callable[[str, str, list[np.ndarray], int], np.ndarray]
"""Computes one result of an op: its kind, its body, the operands, and which of its results."""

_languages: dict[str, Callable[[], Evaluate]] = {}
_HOLDS = {"fp16": np.float32, "bool": np.bool_, "int32": np.int64, "uint8": np.uint8}


@op(
    "host",
    "*operands",
    "language kind body shape dtype output reason",
    dtypes="attribute",
    no_derivative="it runs on the host, outside the graph language",
    diverges_as="elementwise",
)
class HOST:
    """An op of a model file that the host computes in float32, because the engine has no form for it."""

    @staticmethod
    def shape(*operands: Shape, shape, **_) -> Shape:
        return shape

    @staticmethod
    def reference(*operands, language, kind, body, shape, dtype, output, reason):
        result = np.asarray(_evaluator(language)(kind, body, list(operands), output))
        if result.shape != tuple(shape):
            raise ValueError(f"{kind} gave shape {list(result.shape)}, not {list(shape)}")
        return result.astype(_HOLDS[dtype])


def register_language(language: str, load: Callable[[], Evaluate]) -> None:
    """Register the evaluator of the host ops of a language. ``load`` is called when an op is first computed, because
    the evaluator may need a large library."""
    _languages[language] = load


def _evaluator(language: str) -> Evaluate:
    load = _languages.get(language)
    if load is None:
        known = ", ".join(_languages) or "none: load the model with af.load or af.load_graph"
        raise GraphError(f"host ops of {language!r} have no evaluator; choose one: {known}")
    return load()


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
    """One result of an op that runs on the host: ``kind`` is its name in the model's own language, ``body`` all else
    that its evaluator needs, ``reason`` why it cannot run on the engine."""
    attrs = {"language": language, "kind": kind, "body": body, "shape": shape_of(shape)}
    return make(HOST, operands, {**attrs, "dtype": dtype, "output": int(output), "reason": reason})
