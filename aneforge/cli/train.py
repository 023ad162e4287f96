"""``aneforge train`` and ``aneforge gradcheck``: a graph with parameters, trained or checked on simulated chips."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aneforge import text
from aneforge.chips.names import one_chip
from aneforge.cli import notes, say
from aneforge.cli.notes import warnings_on_stderr, working
from aneforge.cli.options import ModelFile, load_model, require_file
from aneforge.errors import AneforgeError
from aneforge.sim.inputs import read_arrays
from aneforge.train.backward import loss_of
from aneforge.train.gradcheck import gradcheck
from aneforge.train.loop import TrainingHistory
from aneforge.train.losses import CEHandle
from aneforge.train.objectives import objective_of
from aneforge.train.trainer import Trainer


@dataclass(frozen=True)
class TrainOptions:
    """What ``train`` was asked for."""

    data: str
    steps: int
    loss: str
    lr: float
    loss_scale: float
    optimizer: str
    on_engine: bool
    overflow: str
    out: str | None
    every: int
    resume: str | None
    seed: int | None
    mode: str
    as_json: bool


def run(model: ModelFile, chip: str, options: TrainOptions) -> None:
    """Train, write the checkpoint, and print what came of it."""
    require_file(options.out)
    graph = load_model(model)
    objective = objective_of(graph, options.loss, str(model))
    notes.slow_kernel(options.mode)
    with warnings_on_stderr():
        trainer = Trainer(
            objective,
            loss_of(objective).graph().parameters,
            options.lr,
            options.loss_scale,
            optimizer=options.optimizer,
            device_optimizer=options.on_engine,
            resident_state=options.on_engine,
            target=one_chip(chip),
            mode=options.mode,
            overflow=options.overflow,
        )
        if options.resume is not None:
            trainer.load(options.resume)
        data = _data(objective, read_arrays(options.data), options.data)
        history = _fit(trainer, data, options)
    result = {
        "target": trainer.target.name,
        "steps": trainer.steps,
        "losses": history.losses,
        "skipped": history.skipped,
        "loss_scale": trainer.loss_scale,
        "slices": {"reached": trainer.guard.reached, "limit": trainer.guard.limit, "clamps": trainer.guard.clamps},
        "plan": trainer.plan.to_json(),
        "checkpoint": options.out,
    }
    if options.as_json:
        print(text.as_json(result))
        return
    print(history)
    print(trainer.plan)
    if trainer.guard.hears:
        print(f"gradients at slices that clamp {trainer.guard}")
    if options.out is not None:
        print(f"the checkpoint is in {options.out}; --resume continues from it")


def _fit(trainer: Trainer, data: dict[str, np.ndarray], options: TrainOptions) -> TrainingHistory:
    try:
        with working("training") as progress:
            seed = 0 if options.seed is None else options.seed
            return trainer.fit(data, options.steps, seed, options.out, options.every, progress or False)
    except KeyboardInterrupt:
        if options.out is not None:
            say.note(f"interrupted after step {trainer.steps}; --resume {options.out} continues from there")
        raise


def _data(objective: Any, arrays: dict[str, np.ndarray], file: str) -> dict[str, np.ndarray]:
    """The arrays of the file; class numbers become rows of zeros with a one where a cross entropy takes them."""
    if not isinstance(objective, CEHandle):
        return arrays
    name, classes = str(objective.target.name), objective.logits.shape[1]
    numbers = arrays.get(name)
    if numbers is None or numbers.ndim != 1:
        return arrays
    if numbers.dtype.kind not in "iu" or (numbers.size and not 0 <= numbers.min() <= numbers.max() < classes):
        raise AneforgeError(f"{Path(file).name}: {name} must hold class numbers from 0 to {classes - 1}.")
    return {**arrays, name: np.eye(classes, dtype=np.float32)[numbers]}


def check(
    model: ModelFile,
    chips: str,
    inputs: str | None,
    loss: str,
    loss_scale: float,
    samples: int,
    seed: int | None,
    as_json: bool,
) -> bool:
    """Whether no chip loses a gradient."""
    with warnings_on_stderr(), working(f"reading {model.name}") as progress:
        report = gradcheck(
            model.path,
            chips,
            inputs,
            loss=loss,
            loss_scale=loss_scale,
            samples=samples,
            seed=seed,
            progress=progress,
            **model.options,
        )
    if inputs is None:
        notes.drawn(seed or 0, 1)
    print(text.as_json({"ok": report.ok, **report.to_json()}) if as_json else report)
    return report.ok
