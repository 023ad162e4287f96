"""Packages whose form is the question: in fp32, or with rows that a call chooses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import DataError
from aneforge.formats.exports.coreml import fix_identifiers
from aneforge.formats.exports.mil import quiet_mil
from aneforge.reports.kit.graphs import values_of

_ROWS = 2
_SIZES = (32, 64, 128)


def write_form(form: str, record: Mapping[str, Any], file: Path) -> dict[str, str]:
    """One convolution that keeps the size of its map, as a package of some form; its names of what it holds."""
    if form not in ("fp32", "range", "listed"):
        raise DataError(f"experiments.json: form {form!r}; choose one: fp32, range, listed")
    mil, kind = quiet_mil(), "fp32" if form == "fp32" else "fp16"
    shape, weight = list(record["inputs"]["x"]["shape"]), values_of(record["weights"]["w"], 0, "w")
    ports: OrderedDict[str, Any] = OrderedDict()
    sizes = [*shape[:_ROWS], mil.open_extent("rows"), *shape[_ROWS + 1 :]] if kind == "fp16" else shape
    ports["x"] = mil.port("x", sizes, False, kind)
    with mil.function(ports) as function:
        kernel = weight.astype(np.float32 if kind == "fp32" else np.float16)
        y = mil.op("conv", "y", x=function.inputs["x"], weight=kernel, pad_type="same")
        function.set_outputs([y])
    inputs = [mil.flexible("x", shape, _ROWS, _SIZES, form == "listed")] if kind == "fp16" else []
    file.parent.mkdir(parents=True, exist_ok=True)
    mil.save(function, file, inputs)
    fix_identifiers(file)
    return {"x": "x", "y": "y"}
