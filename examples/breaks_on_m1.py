"""A detector over 16-bit samples that works on an M5 and breaks on an M1.

The difference of neighbouring samples is taken with a slice that begins inside the width. An M1 and an M2 move such a
slice through fixed point, where magnitudes above 4094 are lost, and what comes out at the end is a wrong answer that
looks like any other. ``aneforge risks examples/breaks_on_m1.py --target m1`` finds it before anything runs, and
``--out fixed.aneforge`` writes the network that passes.
"""

from __future__ import annotations

import numpy as np

import aneforge as af

SAMPLES, FILTERS = 512, 16


def out() -> af.Tensor:
    rng = np.random.default_rng(7)
    signal = af.input((1, 1, 1, SAMPLES), max_abs=16000, name="signal")  # half of what 16 bits hold
    ahead = signal[:, :, :, 1:].named("ahead")
    change = (ahead - signal[:, :, :, :-1]).named("change")
    level = (change * (1 / 4096)).named("level")
    bank = af.conv(level, rng.normal(0, 0.3, (FILTERS, 1, 1, 9)), pad=(0, 0, 4, 4)).relu().named("bank")
    loudness = bank.mean(3).reshape(1, FILTERS).named("loudness")
    return loudness.linear(rng.normal(0, 0.3, (4, FILTERS))).softmax(-1).named("event")
