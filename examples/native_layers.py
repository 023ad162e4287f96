"""Two layers that converters never emit, authored directly: fused attention and a top-k. The M1 takes only the first.

aneforge validate examples/native_layers.py --target m1,m2,m5
"""

from __future__ import annotations

import aneforge as af

q, k, v = (af.input((1, 2, 8, 16), name=name) for name in "qkv")
scores = af.input((4, 16), name="scores")

out = [af.sdpa(q, k, v).named("attention"), af.topk(scores, 5).named("best")]
