"""The small network of docs/concepts/phases.md: each phase of the compiler has something to do for it on an M1.

``aneforge compile examples/small.py --target m1``"""

from __future__ import annotations

import numpy as np

import aneforge as af

rng = np.random.default_rng(8)


def build() -> af.Tensor:
    x = af.input((1, 8, 16, 16), name="x", max_abs=4.0)
    y = af.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]).named("border")
    y = af.conv(y, rng.normal(0, 0.1, (8, 8, 3, 3))).named("conv")
    y = af.batch_norm(y, *(np.full(8, value) for value in (2.0, 0.5, 0.0, 1.0))).named("norm")
    y = y.relu().named("act")
    y = af.upsample_bilinear(y, 2).named("wide")
    return af.gather(y, [6, 0, 3], 1).named("out")


out = build()
