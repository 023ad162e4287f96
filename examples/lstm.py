"""A two-layer LSTM over 32 steps: no engine has a recurrent cell, so every chip unrolls it.
``aneforge check examples/lstm.py --target m1,m5``"""

from __future__ import annotations

import numpy as np

import aneforge as af

rng = np.random.default_rng(4)
STEPS, FEATURES, HIDDEN = 32, 64, 128


def cell(x: af.Tensor) -> af.Tensor:
    scale = HIDDEN**-0.5
    w = rng.normal(0, scale, (4 * HIDDEN, x.shape[2]))
    return af.lstm(x, w, rng.normal(0, scale, (4 * HIDDEN, HIDDEN)), np.zeros(4 * HIDDEN))


def build() -> af.Tensor:
    x = af.input((STEPS, 1, FEATURES), name="sequence")
    y = cell(cell(x))
    return y[STEPS - 1].linear(rng.normal(0, 0.1, (10, HIDDEN))).softmax().named("classes")


out = build()
