"""``flow_of``: whether a chip streams a weight in its stored form, or folds it to dense fp16."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from aneforge.codecs.encoding import ENCODINGS
from aneforge.errors import UnknownNameError, nearest
from aneforge.graph.encoding import SMALLEST_NORMAL, Encoded
from aneforge.graph.fp8 import FP8
from aneforge.graph.halves import FP16_MAX
from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target
from aneforge.targets.evidence import Fact
from aneforge.targets.streams import Flow, LayerConditions, WeightForm, runtime_fact, weight_flow


def form_of(encoding: str | Encoded | None) -> WeightForm:
    """What decides the flow of a stored weight, of an encoding by name with its usual options, or of fp16 (None)."""
    if encoding is None or encoding == "fp16":
        return WeightForm("fp16")
    if isinstance(encoding, str):
        return _named(encoding)
    if encoding.form in FP8:
        return WeightForm("fp8", 8)
    table = encoding.table
    return WeightForm(
        encoding.form,
        encoding.bits,
        looks_up=table is not None,
        vector_size=1 if table is None else table.shape[-1],
        tables=1 if table is None else math.prod(table.shape[:-2]),
        is_scaled=table is not None and encoding.scale is not None,
        has_zero_points=encoding.zero_point is not None,
        is_readable=_is_readable(encoding),
    )


def _is_readable(encoded: Encoded) -> bool:
    if encoded.form == "affine" or (encoded.form == "palette" and encoded.scale is not None):
        return scales_outputs(encoded)
    return encoded.form != "blockwise" or _fits_halves(encoded)


def scales_outputs(encoded: Encoded) -> bool:
    """Whether the scales of a weight lie along its outputs, and fp16 holds them to all their digits."""
    if encoded.scale is None:
        return False
    lines = [part for part in (encoded.scale, encoded.zero_point) if part is not None]
    return all(part.size in (1, part.shape[0]) for part in lines) and _fits_halves(encoded)


def _fits_halves(encoded: Encoded) -> bool:
    assert encoded.scale is not None
    sizes = np.abs(encoded.scale.astype(np.float64))
    return bool(((sizes >= SMALLEST_NORMAL) & (sizes <= FP16_MAX)).all())


@cache
def _named(name: str) -> WeightForm:
    if name not in ENCODINGS:
        near = ", ".join(nearest(name, ENCODINGS)) or ", ".join(ENCODINGS)
        raise UnknownNameError(f"{name!r}: not a weight encoding; nearest: {near}")
    if name in FP8:
        return WeightForm("fp8", 8)
    if name in ("sparse", "blockwise"):
        return WeightForm(name, 16 if name == "sparse" else 8)
    if name in ("int8", "int4-affine"):
        return WeightForm("affine", 8 if name == "int8" else 4)
    bits = int(re.findall(r"\d", name)[0])
    return WeightForm("sparse" if name.startswith("sparse") else "palette", bits, looks_up=True)


@dataclass(frozen=True)
class _TargetFacts:
    """The facts of a target, for those who are not a pass."""

    target: Target

    def get(self, key: str) -> Any:
        return self.fact(key).value

    def fact(self, key: str) -> Fact[Any]:
        return compile_fact(self.target, key)


def flow_of(
    target: Target,
    encoding: str | Encoded | None,
    layer: LayerConditions | None = None,
    runtime: str = "direct",
) -> Flow:
    """Whether a chip streams a weight: in an encoding by name, or in the form that it has.

    ``layer`` says what of its layer matters; left out, the layer meets every condition of a stream. ``runtime`` is
    ``direct`` for the program that this compiler builds; ``coreml`` and ``coreai`` add what those were seen to do.
    """
    form = form_of(encoding)
    flow = weight_flow(_TargetFacts(target), form, layer)
    seen = runtime_fact(runtime, form, target.td_generation) if flow.streams else None
    if seen is None or seen.value == "streams":
        return flow
    words = {"expanded": "expands it to fp16 in every call", "refused": "refuses it"}
    return Flow(False, f"{runtime} {words[seen.value]}", (seen,), flow.cap, keeps_form=False)
