"""The training loop, and advice on the loss scale."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil, floor, inf, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aneforge.errors import AneforgeError, ArgumentError
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import ops_with
from aneforge.graph.traits import GraphTrait
from aneforge.progress import Line, LogLines, Progress

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
class TrainingHistory:
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
) -> TrainingHistory:
    """Train up to step number ``steps``. See :meth:`Trainer.fit`."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ArgumentError("steps", f"{steps!r} is not a count; give a whole number, 0 or more.")
    arrays = samples(trainer, data)
    count, batch = len(next(iter(arrays.values()))), trainer.data_inputs[0].shape[0]
    history, start, skipped = TrainingHistory(), time.perf_counter(), trainer.skipped
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


def samples(trainer: Trainer, data: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
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


# Advice on the loss scale, from the magnitudes that a backward pass has in float64.


_BITS = 4  # that a number must keep: as many as gradcheck's tolerance asks for
_SHARE = 0.01  # of the numbers of a node that may keep fewer (U128)
_ROOM = 8.0  # how far the largest number stays from its ceiling, since later steps differ (U128)


class Span(NamedTuple):
    """What an op's result can hold: the value of its last digit at small numbers, and where it ends."""

    digit: float = 2.0**-24
    ceiling: float = FP16_MAX

    @property
    def floor(self) -> float:
        """The smallest number that keeps enough bits."""
        return self.digit * 2.0**_BITS


FP16 = Span()
PRODUCT = Span(2.0**-16, 32768.0)


@dataclass(frozen=True)
class ScaleAdvice:
    """What was seen at one loss scale, and which scale fits it."""

    loss_scale: float
    largest: float
    """The magnitude of the backward pass that is nearest to its ceiling, and where that is."""
    ceiling: float
    node: str
    lost: float
    """The share of numbers that are less than half a digit, so zero."""
    coarse: float
    """The share that keeps fewer than four bits."""
    least: float
    """The smallest power of two at which all but one number in a hundred of each node keeps four bits."""
    most: float
    """The largest power of two that leaves a factor of eight to every ceiling."""

    @property
    def advised(self) -> float:
        """The scale to use: the least, at least one, and never above the most."""
        return min(max(self.least, 1.0), self.most)

    @property
    def fits(self) -> bool:
        """Whether the scale that was used is one of those that fit."""
        return min(self.advised, self.least) <= self.loss_scale <= self.most

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "advised": self.advised, "fits": self.fits}

    def __str__(self) -> str:
        seen = (
            f"loss scale {self.loss_scale:g}: the largest gradient is {self.largest:.3g} of {self.ceiling:.0f} at "
            f"{self.node}; {100 * self.lost:.1f} % are zero, {100 * self.coarse:.1f} % keep fewer than {_BITS} bits"
        )
        if self.fits:
            return f"{seen}. Keep this scale."
        limit = "" if self.least <= self.most else f" (small gradients want {self.least:g}, the largest forbids it)"
        return f"{seen}. Advised: {self.advised:g}{limit}"


def advise(values: Mapping[str, np.ndarray], spans: Mapping[str, Span], loss_scale: float) -> ScaleAdvice:
    """Advice from the float64 values of backward nodes by name, which carry ``loss_scale``; ``spans`` are those of
    nodes that hold less than fp16."""
    nearest, node, largest, ceiling = inf, "-", 0.0, FP16.ceiling
    lost = coarse = counted = 0
    least = 0.0
    for name, array in values.items():
        sizes = np.abs(np.asarray(array, np.float64)).reshape(-1)
        sizes = sizes[(sizes > 0) & np.isfinite(sizes)]
        if not sizes.size:
            continue
        top, span = float(sizes.max()), spans.get(name, FP16)
        if span.ceiling / top < nearest:
            nearest, node, largest, ceiling = span.ceiling / top, name, top, span.ceiling
        counted += sizes.size
        lost += int((sizes < span.digit / 2).sum())
        coarse += int((sizes < span.floor).sum())
        small = float(np.quantile(sizes, _SHARE, method="lower"))
        least = max(least, loss_scale * span.floor / small)
    return ScaleAdvice(
        loss_scale,
        largest,
        ceiling,
        node,
        lost=lost / max(counted, 1),
        coarse=coarse / max(counted, 1),
        least=_power(least, up=True),
        most=_power(loss_scale * nearest / _ROOM, up=False),
    )


def _power(value: float, up: bool) -> float:
    """The power of two next to a number; a gradient that is zero everywhere asks for none."""
    if not 0 < value < inf:
        return 1.0 if up else 2.0**24
    exponent = log2(value)
    return 2.0 ** (ceil(exponent - 1e-9) if up else floor(exponent + 1e-9))


def spans_of(nodes: Iterable[tuple[str, str]], clamped: Iterable[str], limit: float) -> dict[str, Span]:
    """What each node holds that holds less than fp16, from its name and op: products, and slices that clamp."""
    products = {name: PRODUCT for name, op in nodes if op in ops_with(GraphTrait.PRODUCT)}
    return {**products, **dict.fromkeys(clamped, Span(ceiling=limit))}
