"""A layer that no converter emits: fused attention, authored by its type (listing 26.3).

``python examples/hidden_layers.py`` compiles it for the M1 (H13), runs it in the simulator and compares it with NumPy.
``--texture`` puts an affine warp in front, which needs the texture engine: the M1 refuses it when it compiles, with
the compiler's words, and the M2 takes it.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import aneforge as af

HEADS, SEQUENCE, FEATURES = 8, 197, 64
SHAPE = (1, HEADS, SEQUENCE, FEATURES)
SCALE = 0.125
TURN = [[0.98, -0.17, 0.0, 0.17, 0.98, 0.0]]  # ten degrees


def authored(texture: bool) -> af.Tensor:
    """The graph: three inputs, and one native layer that names its descriptor."""
    q, k, v = (af.input(SHAPE, name=name) for name in "qkv")
    if texture:
        q = af.bridge("AffineTransform", [q, TURN], height=SEQUENCE, width=FEATURES, name="warp")
    return af.bridge("SDPA", [q, k, v, SCALE], SubtractMax=True, name="attn")


def out() -> af.Tensor:
    """For commands that take a model: ``aneforge compile examples/hidden_layers.py --target m1``."""
    return authored(texture=False)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """What the layer means, in NumPy."""
    scores = np.einsum("nhsf,nhtf->nhst", q, k) * SCALE
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("nhst,nhtf->nhsf", powers / powers.sum(axis=-1, keepdims=True), v)


def report(model: af.SegmentedModel, texture: bool) -> None:
    """The segments, and how far the chip's numbers are from NumPy's."""
    print(f"{len(model.segments)} segments on {model.target.name}, {model.n_netplist} of them native layers")
    for cut in model.cuts:
        print(f"  {cut}")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(SHAPE).astype(np.float16).astype(np.float64) for _ in "qkv")
    result = model(q, k, v)
    if texture:
        print(f"  result {list(result.shape)}, finite: {bool(np.isfinite(result).all())}")
    else:
        print(f"  largest difference from NumPy: {np.abs(result - attention(q, k, v)).max():.4f}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Author a hidden layer, compile it and run it.")
    parser.add_argument("--texture", action="store_true", help="put a layer of the texture engine in front")
    texture = parser.parse_args(arguments).texture
    for chip in ("M1", "M2") if texture else ("M1",):
        try:
            model = af.compile(authored(texture), target=chip)
        except af.CompileError as error:
            print(f"{chip} refuses it: {error}")
            continue
        assert isinstance(model, af.SegmentedModel)
        report(model, texture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
