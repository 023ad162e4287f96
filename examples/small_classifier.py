"""A network whose weights can be trained: `aneforge gradcheck` and `aneforge train` take `logits` or `loss`."""

from __future__ import annotations

import numpy as np

import aneforge as af

draw = np.random.default_rng(0)
x = af.input((8, 1, 12, 12), name="x")
kernel = af.conv_param(draw.standard_normal((6, 1, 3, 3)) * 0.4, name="kernel")
gamma = af.parameter(np.ones((1, 6, 1, 1)), name="gamma")
beta = af.parameter(np.zeros((1, 6, 1, 1)), name="beta")
matrix = af.parameter(draw.standard_normal((216, 4)) * 0.07, name="matrix")

hidden = af.conv_block(x, kernel, gamma, beta, groups=2, pool=2)
logits = (hidden.reshape(8, 216) @ matrix).named("logits")
loss = logits.square().mean()
