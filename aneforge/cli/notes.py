"""Notes beside the results of a simulation, on stderr."""

from __future__ import annotations

from aneforge.cli import say
from aneforge.sim import native
from aneforge.study.partition import Partition


def slow_kernel(mode: str) -> None:
    """Why an exact simulation is slow here, if it is."""
    if mode == "exact" and native.why_not():
        say.note(f"{native.why_not()}; exact sums run in NumPy, the same bits and far slower")


def drawn(seed: int | None, samples: int) -> None:
    """Where the inputs came from, if nobody gave them."""
    if seed is not None:
        what = "inputs were" if samples == 1 else f"inputs of {samples} samples were"
        say.note(f"{what} drawn with seed {seed}; --input FILE.npz gives your own")


def regions(split: Partition) -> None:
    """Which part of the model was not on the engine."""
    say.note(f"{split.summary()} in float32 (aneforge partition lists them)")
