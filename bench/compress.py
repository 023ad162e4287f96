"""Speed of the weight codecs: a 4096 x 4096 weight into every stored form and back. Asserts no times.

Run with ``make bench`` or ``python bench/compress.py [--json]``. Megabytes are those of the weight in fp16; each
figure is the best of several runs on one core.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from targets import best

import aneforge as af
from aneforge.graph.codecs.encoding import encode

SIDE = 4096
MEGABYTES = 2 * SIDE * SIDE / 1e6
FORMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("int8", {}),
    ("int8", {"axis": None}),
    ("int8", {"symmetric": False}),
    ("int4-affine", {}),
    ("sparse", {}),
    ("blockwise", {}),
    ("lut4", {}),
    ("lut4", {"method": "uniform"}),
    ("lut4", {"group_size": 32}),
    ("lut4", {"vector_size": 2}),
    ("lut6", {}),
    ("lut8", {}),
    ("sparse-lut4", {}),
    ("fp8-e4m3", {}),
)


def weight() -> np.ndarray:
    """Normal numbers, 60 of 100 of them zero."""
    random = np.random.default_rng(0)
    numbers = random.standard_normal((SIDE, SIDE), np.float32) * 0.02
    numbers[random.random((SIDE, SIDE)) < 0.6] = 0
    return numbers.astype(np.float16)


def main() -> None:
    numbers = weight()
    dense = (np.random.default_rng(1).standard_normal((SIDE, SIDE), np.float32) * 0.02).astype(np.float16)
    figures: dict[str, float] = {}
    for form, options in FORMS:
        source = numbers if form.startswith("sparse") else dense
        encoded = encode(source, form, **options)
        name = " ".join([form, *(f"{key}={value}" for key, value in options.items())])
        seconds = best(lambda source=source, form=form, options=options: encode(source, form, **options))
        figures[f"{name}: encode, s"] = seconds
        figures[f"{name}: encode, MB/s"] = MEGABYTES / seconds
        figures[f"{name}: decode to fp16, MB/s"] = MEGABYTES / best(lambda encoded=encoded: encoded.decode(np.float16))
        figures[f"{name}: to bytes, MB/s"] = MEGABYTES / best(encoded.to_bytes)
    layer = af.input((1, SIDE)).linear(dense)
    figures["compile one layer with compress='auto' for m5, s"] = best(
        lambda: af.compile(layer, target="m5", compress="auto")
    )
    if "--json" in sys.argv:
        print(json.dumps(figures, indent=1))
    else:
        width = max(map(len, figures))
        print("\n".join(f"{name.ljust(width)}  {value:10.3f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
