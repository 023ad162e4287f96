"""The training loop: batches that depend on the seed and the step only, progress, and interrupts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import AneforgeError, ArgumentError
from aneforge.output.progress import Line, LogLines, Progress

if TYPE_CHECKING:
    from aneforge.train.trainer import Trainer


def batch_of(count: int, batch: int, seed: int, step: int) -> np.ndarray:
    """Which of ``count`` samples step number ``step`` takes: each epoch is a new order of all, without the rest that
    fills no batch. It depends on nothing else, so a run that is resumed sees the batches of one that was not."""
    if not 0 < batch <= count:
        raise AneforgeError(f"data: {count} samples do not fill a batch of {batch}. Give more, or a smaller batch.")
    per_epoch = count // batch
    epoch, place = divmod(step, per_epoch)
    order = np.random.default_rng([seed, epoch]).permutation(count)
    return order[place * batch : (place + 1) * batch]


@dataclass
class History:
    """What a call of ``fit`` did."""

    losses: list[float] = field(default_factory=list)
    """One a step; NaN never occurs here, because a NaN loss is an error."""
    skipped: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Steps in a second."""
        return len(self.losses) / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        return {"losses": self.losses, "skipped": self.skipped, "seconds": self.seconds}

    def __str__(self) -> str:
        if not self.losses:
            return "no steps"
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{len(self.losses)} steps{skipped}, loss {self.losses[0]:.4g} to {self.losses[-1]:.4g}"


def fit(
    trainer: Trainer,
    data: Sequence[np.ndarray] | Mapping[str, np.ndarray],
    steps: int,
    seed: int,
    checkpoint: str | Path | None,
    every: int,
    progress: bool | Progress | None,
) -> History:
    """Train up to step number ``steps``. See :meth:`Trainer.fit`."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ArgumentError("steps", f"{steps!r} is not a count; give a whole number, 0 or more.")
    arrays = _samples(trainer, data)
    count, batch = len(next(iter(arrays.values()))), trainer.data_inputs[0].shape[0]
    history, start, skipped = History(), time.perf_counter(), trainer.skipped
    try:
        with listener(progress) as hear:
            while trainer.steps < steps:
                places = batch_of(count, batch, seed, trainer.steps)
                loss = trainer.step(**{name: array[places] for name, array in arrays.items()})
                history.losses.append(loss)
                history.seconds = time.perf_counter() - start
                hear(trainer.steps, steps, step_text(loss, history.rate))
                if checkpoint is not None and every and trainer.steps % every == 0:
                    trainer.save(checkpoint)
    finally:
        # Also after Ctrl-C: the state is that of the last whole step, so the file is one that can be resumed.
        if checkpoint is not None:
            trainer.save(checkpoint)
        history.skipped = trainer.skipped - skipped
    return history


def step_text(loss: float, rate: float) -> str:
    """What progress says of a step: the loss, and the steps in a second."""
    return f"loss {loss:.4g}, {rate:.1f} steps/s"


def _samples(trainer: Trainer, data: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The data by the name of their input, all of one length, each with the shape that its input has."""
    names = trainer.data_names
    if not isinstance(data, Mapping):
        listed = list(data)
        if len(listed) != len(names):
            raise ArgumentError("data", f"{len(listed)} arrays were given; the loss takes {', '.join(names)}.")
        data = dict(zip(names, listed, strict=True))
    if set(data) != set(names):
        raise ArgumentError("data", f"arrays are given for {', '.join(data) or 'none'}; expected {', '.join(names)}.")
    arrays = {name: np.asarray(data[name]) for name in names}
    for name, port in zip(names, trainer.data_inputs, strict=True):
        if arrays[name].shape[1:] != port.shape[1:] or arrays[name].ndim != len(port.shape):
            raise ArgumentError(
                "data", f"{name} has samples of {list(arrays[name].shape[1:])}; expected {list(port.shape[1:])}."
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    batches = {port.shape[0] for port in trainer.data_inputs}
    if len(set(lengths.values())) != 1 or len(batches) != 1:
        raise ArgumentError("data", f"all inputs need as many samples and one batch size; lengths are {lengths}.")
    return arrays


@contextmanager
def listener(progress: bool | Progress | None) -> Iterator[Progress]:
    """Who hears of every step: a function; a line on a terminal; a few lines where one is asked for and there is no
    terminal; or nobody."""
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda done, total, what: None
    elif sys.stderr.isatty():
        with Line("training") as line:
            yield line
    else:
        yield LogLines(lambda words: print(words, file=sys.stderr, flush=True))
