"""``validate=True``: compare the float64 meaning of the program before and after every pass."""

from __future__ import annotations

import numpy as np

from aneforge.compiler.passes import Pass, PassLog
from aneforge.engine.interpret import interpret
from aneforge.engine.ir import AnecError, Module, Op

EXACT = 1e-9
"""Reordered float64 sums differ by less."""
ROUNDED = 4e-3
"""A pass that stores a constant anew rounds it to fp16: 2^-11 of each constant, summed over a few layers."""
SEED = 4


class Validator:
    """Watches a pipeline and names a pass that changes what the program means. The lowered code is the reference."""

    def __init__(self) -> None:
        self._feeds: dict[str, np.ndarray] = {}
        self._before: dict[str, np.ndarray] = {}
        self.checked = 0

    def start(self, module: Module) -> None:
        """Take the meaning of a module as the reference."""
        rng = np.random.default_rng(SEED)
        self._feeds = {op.attrs["name"]: _sample(rng, op.shape, _dtype(op)) for op in module.inputs}
        self._before = interpret(module, self._feeds)

    def __call__(self, step: Pass, entry: PassLog, module: Module) -> None:
        if step.name == "lower":
            self.start(module)
            return
        if not entry.changes:
            return
        after = interpret(module, self._feeds)
        for name, expected in self._before.items():
            _compare(step, name, expected, after[name])
        self._before = after
        self.checked += 1


def _dtype(op: Op) -> str:
    assert op.type is not None
    return op.type.dtype


def _sample(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "ui8":
        return rng.integers(0, 256, shape).astype(np.float64)
    return rng.standard_normal(shape).astype(np.float16).astype(np.float64)


def _compare(step: Pass, name: str, expected: np.ndarray, actual: np.ndarray) -> None:
    bound = ROUNDED if step.rounds else EXACT
    before, after = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
    finite = np.isfinite(before)
    if before.shape != after.shape or not np.array_equal(finite, np.isfinite(after)):
        raise AnecError(f"pass {step.name!r} changed which numbers of {name!r} are finite")
    if not finite.any():
        return
    scale = max(1.0, float(np.abs(before[finite]).max()))
    error = float(np.abs(before[finite] - after[finite]).max()) / scale
    if error > bound:
        raise AnecError(f"pass {step.name!r} changed {name!r} by {error:.3g} of its range, more than {bound:g}")
