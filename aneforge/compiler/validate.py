"""``validate=True``: the float64 meaning of the program before and after every pass."""

from __future__ import annotations

import numpy as np

from aneforge.anec.interpret import interpret
from aneforge.anec.ir import AnecError, Module, Op
from aneforge.compiler.passes import Pass, PassLog

__all__ = ["Validator"]

EXACT = 1e-9
"""Reordered float64 sums differ by less."""
ROUNDED = 4e-3
"""A pass that stores a constant anew rounds it to fp16: 2^-11 of each constant, summed over a few layers."""
SEED = 4


class Validator:
    """Watches a pipeline: a pass that changes what the program means is named. What lowering gives is the measure."""

    def __init__(self) -> None:
        self._feeds: dict[str, np.ndarray] = {}
        self._before: dict[str, np.ndarray] = {}
        self.checked = 0

    def start(self, module: Module) -> None:
        """Take what a module means for the measure."""
        rng = np.random.default_rng(SEED)
        self._feeds = {op.attrs["name"]: _sample(rng, op.shape, _dtype(op)) for op in module.inputs}
        self._before = interpret(module, self._feeds)

    def __call__(self, each: Pass, entry: PassLog, module: Module) -> None:
        if each.name == "lower":
            self.start(module)
            return
        if not entry.changes:
            return
        after = interpret(module, self._feeds)
        for name, expected in self._before.items():
            _compare(each, name, expected, after[name])
        self._before = after
        self.checked += 1


def _dtype(op: Op) -> str:
    assert op.type is not None
    return op.type.dtype


def _sample(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "ui8":
        return rng.integers(0, 256, shape).astype(np.float64)
    return rng.standard_normal(shape).astype(np.float16).astype(np.float64)


def _compare(each: Pass, name: str, expected: np.ndarray, found: np.ndarray) -> None:
    bound = ROUNDED if each.rounds else EXACT
    one, two = np.asarray(expected, np.float64), np.asarray(found, np.float64)
    finite = np.isfinite(one)
    if one.shape != two.shape or not np.array_equal(finite, np.isfinite(two)):
        raise AnecError(f"pass {each.name!r} changed which numbers of {name!r} are finite")
    if not finite.any():
        return
    scale = max(1.0, float(np.abs(one[finite]).max()))
    error = float(np.abs(one[finite] - two[finite]).max()) / scale
    if error > bound:
        raise AnecError(f"pass {each.name!r} changed {name!r} by {error:.3g} of its range, more than {bound:g}")
