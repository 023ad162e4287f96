"""The same seeded training run under the arithmetic of several chips, step by step beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, chips_of
from aneforge.graph.tensor import Tensor
from aneforge.progress import Progress
from aneforge.text import columns
from aneforge.train.backward import Objective
from aneforge.train.loop import batch_of, listener, step_text
from aneforge.train.trainer import Trainer


@dataclass
class TrainingRun:
    """One chip's run."""

    chip: str
    losses: list[float] = field(default_factory=list)
    drift: list[float] = field(default_factory=list)
    """After each step, the largest difference of a parameter from the reference chip."""
    different: list[int] = field(default_factory=list)
    """After each step, how many numbers of the parameters have other bits than on the reference chip."""
    accuracy: float | None = None
    skipped: int = 0
    guard: str = ""
    plan: str = ""

    @property
    def first_difference(self) -> int | None:
        """The first step after which a parameter differs from the reference chip; None where none does."""
        return next((step for step, count in enumerate(self.different, 1) if count), None)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "first_difference": self.first_difference}


@dataclass
class Parity:
    """Runs by chip; the first is the reference."""

    runs: dict[str, TrainingRun]
    parameters: int
    """Numbers that are trained."""
    samples: int
    """Samples behind an accuracy."""

    def to_json(self) -> dict[str, Any]:
        runs = {chip: run.to_json() for chip, run in self.runs.items()}
        return {"parameters": self.parameters, "samples": self.samples, "targets": runs}

    def __str__(self) -> str:
        rows = []
        for place, run in enumerate(self.runs.values()):
            accuracy = "-" if run.accuracy is None else f"{run.accuracy:.4f}"
            loss = f"{run.losses[-1]:.4f}" if run.losses else "-"
            if not place:
                first, share, most = "reference", "-", "-"
            else:
                first = "never" if run.first_difference is None else f"step {run.first_difference}"
                share = f"{100 * run.different[-1] / self.parameters:.1f} %" if run.different else "-"
                most = f"{run.drift[-1]:.2g}" if run.drift else "-"
            rows.append([run.chip, accuracy, loss, first, share, most, run.skipped, run.guard])
        headers = ["chip", "accuracy", "last loss", "weights differ from", "differ at end", "by at most", "skipped"]
        return columns([*headers, "gradients at slices that clamp"], rows)


def compare_training(
    objective: Objective,
    params: Sequence[Tensor],
    lr: float,
    data: Sequence[np.ndarray],
    steps: int,
    target: Chips = "m1,m2,m5",
    *,
    logits: Tensor | None = None,
    test: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
    progress: bool | Progress | None = None,
    options: Mapping[str, Any] | None = None,
) -> Parity:
    """Train one graph on several chips, all on the same batches, and compare their parameters after every step.

    ``test`` is a pair of samples and class numbers; with ``logits`` it gives an accuracy. ``options`` are those of
    :class:`Trainer`. The parameters compared are those that the optimiser keeps: float32 on the host, fp16 on the
    engine. ``progress`` is as for :meth:`Trainer.fit`.
    """
    if (logits is None) != (test is None):
        raise ArgumentError("test", "accuracy needs both logits and test.")
    chips = list(chips_of(target))
    trainers = {chip: Trainer(objective, params, lr, target=chip, **(options or {})) for chip in chips}
    runs = {chip: TrainingRun(chip) for chip in chips}
    reference = trainers[chips[0]]
    arrays = dict(zip(reference.data_names, (np.asarray(array) for array in data), strict=True))
    count, batch = len(next(iter(arrays.values()))), reference.data_inputs[0].shape[0]
    start = perf_counter()
    with listener(progress) as hear:
        for step in range(steps):
            places = batch_of(count, batch, seed, step)
            batches = {name: array[places] for name, array in arrays.items()}
            for chip, trainer in trainers.items():
                runs[chip].losses.append(trainer.step(**batches))
                most, different = _distance(reference.state.values, trainer.state.values)
                runs[chip].drift.append(most)
                runs[chip].different.append(different)
            rate = (step + 1) / (perf_counter() - start)
            hear(step + 1, steps, step_text(runs[chips[0]].losses[-1], rate))
    for chip, trainer in trainers.items():
        run = runs[chip]
        run.skipped, run.guard = trainer.skipped, str(trainer.guard) if trainer.guard.hears else "none"
        if logits is not None and test is not None:
            chosen = trainer.predict(logits, test[0]).argmax(axis=1)
            run.accuracy = float((chosen == test[1]).mean())
        run.plan = str(trainer.plan)
    return Parity(runs, sum(param.size for param in params), 0 if test is None else len(test[1]))


def _distance(reference: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> tuple[float, int]:
    """The largest difference, and how many numbers have other bits."""
    most, different = 0.0, 0
    for before, after in zip(reference, values, strict=True):
        other = before != after
        count = int(np.count_nonzero(other))
        if count:
            different += count
            apart = np.abs(before[other].astype(np.float64) - after[other].astype(np.float64))
            most = max(most, float(apart.max()))
    return most, different
