"""``af.load_onnx``: a model file as a model that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aneforge.frontends import onnx_graph
from aneforge.model import Model
from aneforge.model import compile as compile_model
from aneforge.targets.chip import Target

__all__ = ["load_onnx"]


def load_onnx(
    path: Any,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    target: str | int | Target | None = None,
    **options: Any,
) -> Model:
    """An ONNX file, whatever its name ends in, compiled for one chip and ready to be called.

    ``dims`` gives values to the symbolic dimensions of its inputs, ``fixed`` to whole inputs that are the same for
    every run; ``target`` and ``options`` are those of :func:`aneforge.compile`. ``af.load`` gives the graph instead,
    and ``af.partition(af.load(path))`` runs a model that the engine does not take whole.
    """
    return compile_model(onnx_graph(path, dims, fixed), target=target, **options)
