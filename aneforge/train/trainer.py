"""``af.Trainer``: a loss, its parameters and an optimiser as one program of a chip, run step by step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.chips.names import chip_label
from aneforge.errors import AneforgeError, ArgumentError, LoadError
from aneforge.formats.arguments import chip_of
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.progress import Progress
from aneforge.sim.executor import TraceEntry
from aneforge.study.model import Model, build
from aneforge.train.backward import Objective, checked_params, checked_scale, loss_of
from aneforge.train.checkpoint import Checkpoint, fingerprint, read_checkpoint, write_checkpoint
from aneforge.train.guard import SliceGuard
from aneforge.train.loop import TrainingHistory, batch_of, fit, samples
from aneforge.train.losses import CEHandle
from aneforge.train.optimisers import OPTIMISERS, Adam, Optimiser, OptimiserState
from aneforge.train.step import StepProgram, StepResult

OVERFLOW = ("skip", "halve", "error")
_MOST_SKIPPED = 50  # in a row: nothing trains any more


class TrainingWarning(UserWarning):
    """A step was left out because a gradient was not finite."""


@dataclass(frozen=True)
class _Position:
    """Where a run is. It is replaced as a whole, in one assignment, so that Ctrl-C never leaves half a step."""

    state: OptimiserState
    scale: float
    steps: int = 0
    skipped: int = 0
    in_a_row: int = 0
    """Steps that were left out one behind the other, up to now."""


@dataclass(frozen=True)
class TrainingPlan:
    """What a training run needs of a chip."""

    chip: str
    ops: int
    """Backend ops of the step program."""
    programs: int
    """Programs compiled so far: the step, and one for each tensor that was predicted."""
    recompiles: int
    """Programs that a change of the rate, the loss scale or the step number needs: they are inputs, so none."""
    optimiser: str
    bytes_in: int
    bytes_out: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def __str__(self) -> str:
        return (
            f"{self.chip}: {self.programs} program{'s' if self.programs != 1 else ''} ({self.ops} ops a step), "
            f"{self.recompiles} recompiles, {self.optimiser}; a step moves {self.bytes_in:,} bytes in and "
            f"{self.bytes_out:,} out"
        )


class Trainer:
    """Train the parameters of a graph under one chip's arithmetic.

    ``objective`` is a tensor of one element or what :func:`softmax_cross_entropy` gives. ``data_inputs`` is the order
    in which ``step`` takes its arrays (default: the inputs of the loss, in order of creation), or a mapping of them to
    the data of every step; ``set_dataset`` gives the data to draw batches from. ``optimizer`` is ``"sgd"`` or
    ``"adam"``.

    ``device_optimizer`` puts the optimiser into the program: values and moments are fp16 and come back as outputs. On
    the host they are float32, and the chip gets them rounded. ``resident_state`` (with the optimiser in the program)
    hands the outputs of a step to the next one as they are, so that only data and the loss cross to the host (U127).

    ``target`` is a chip, ``mode`` the simulator's: exact or fast. ``overflow`` is what happens when a gradient is NaN
    or infinite: ``"skip"`` leaves the step out and warns once, ``"halve"`` also halves the loss scale, ``"error"``
    stops. A loss that is NaN or infinite is always an error.
    """

    def __init__(
        self,
        objective: Objective,
        params: Sequence[Tensor],
        lr: float,
        loss_scale: float = 1.0,
        data_inputs: Sequence[Tensor] | Mapping[Tensor, np.ndarray] | None = None,
        optimizer: str = "sgd",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        device_optimizer: bool = False,
        resident_state: bool = False,
        *,
        target: str | int | Target | None = None,
        mode: str = "exact",
        overflow: str = "skip",
    ) -> None:
        loss = loss_of(objective)
        if optimizer not in OPTIMISERS:
            raise ArgumentError("optimizer", f"{optimizer!r} is unknown; choose one: {', '.join(OPTIMISERS)}.")
        if overflow not in OVERFLOW:
            raise ArgumentError("overflow", f"{overflow!r} is unknown; choose one: {', '.join(OVERFLOW)}.")
        if resident_state and not device_optimizer:
            raise ArgumentError("resident_state", "it needs the optimiser on the engine. Pass device_optimizer=True.")
        listed = checked_params(params, loss)
        self._optimiser: Optimiser = (
            Adam(listed, lr, betas, eps, loss_scale) if optimizer == "adam" else OPTIMISERS[optimizer](listed, lr)
        )
        self.objective = objective
        self.target: Target = chip_of(target)
        self.mode = mode
        self.overflow = overflow
        self.on_device, self.resident = device_optimizer, resident_state
        self.lr = self._optimiser.lr
        scale = checked_scale(loss_scale)
        order = None if data_inputs is None else list(data_inputs)
        self._step = StepProgram(objective, self._optimiser, self.target, mode, order, device_optimizer)
        self._dataset: tuple[dict[str, np.ndarray], int] | None = None
        if isinstance(data_inputs, Mapping):
            self._set_data(data_inputs, 0)
        self._predictors: dict[int, Model] = {}
        self._fingerprint = fingerprint(Graph([loss]), self._optimiser.params)
        self._at = _Position(self._kept_as(self._optimiser.start(self._dtype)), scale)
        self.guard.warn(scale, stacklevel=3)

    # What it is.

    @property
    def params(self) -> tuple[Tensor, ...]:
        """The parameters that are trained."""
        return self._optimiser.params

    @property
    def data_inputs(self) -> tuple[Tensor, ...]:
        """The inputs that a batch gives, in order."""
        return self._step.data

    @property
    def data_names(self) -> tuple[str, ...]:
        """The inputs of a step by name."""
        return tuple(self._step.name_of[port.uid] for port in self._step.data)

    @property
    def guard(self) -> SliceGuard:
        """What is known of slices that clamp gradients, and the largest magnitude that reached one."""
        return self._step.guard

    @property
    def steps(self) -> int:
        """Steps that were done, with those left out."""
        return self._at.steps

    @property
    def skipped(self) -> int:
        """Steps that were left out, because a gradient was not finite."""
        return self._at.skipped

    @property
    def loss_scale(self) -> float:
        """The loss scale of the next step."""
        return self._at.scale

    @loss_scale.setter
    def loss_scale(self, scale: float) -> None:
        """Change the scale from the next step on; moments that carry it are rescaled. Needs no other program."""
        self._at = self._rescaled(checked_scale(scale))
        self.guard.warn(self._at.scale, stacklevel=3)

    def _rescaled(self, scale: float) -> _Position:
        state = self._at.state
        if self.on_device and state.slots:
            ratio = np.float32(scale / self._at.scale)
            with np.errstate(over="ignore"):
                slots = {
                    name: tuple((array.astype(np.float32) * ratio).astype(np.float16) for array in kept)
                    for name, kept in state.slots.items()
                }
            state = replace(state, slots=slots)
        return replace(self._at, state=state, scale=scale)

    @property
    def state(self) -> OptimiserState:
        """Values and slots now, in the user's shapes."""
        return self._step.laid_out(self._at.state, inward=False) if self.resident else self._at.state

    def _kept_as(self, state: OptimiserState) -> OptimiserState:
        """A state of the user's shapes as it is kept between steps."""
        return self._step.laid_out(state, inward=True) if self.resident else state

    @property
    def values(self) -> dict[Tensor, np.ndarray]:
        """What each parameter is now: float32, or fp16 where the engine has the optimiser."""
        return {param: value.copy() for param, value in zip(self.params, self.state.values, strict=True)}

    @property
    def plan(self) -> TrainingPlan:
        """How many programs and recompiles the run needs, and what crosses to the chip in a step."""
        where = "engine" if self.on_device else "host"
        kept = ", state resident" if self.resident else ""
        inward, outward = self._step.bytes_per_step(self.resident)
        ops, programs = self._step.model.n_ops, 1 + len(self._predictors)
        label = f"{self._optimiser.name} on the {where}{kept}"
        return TrainingPlan(chip_label(self.target.name), ops, programs, 0, label, inward, outward)

    # Training.

    def set_dataset(
        self,
        x_input: Tensor,
        X_full: np.ndarray,  # noqa: N803 - names that existing code passes
        target_input: Tensor,
        Y_onehot: np.ndarray,  # noqa: N803
        seed: int = 0,
    ) -> None:
        """Give the data that ``step()`` without arrays draws its batches from, as :meth:`fit` does."""
        self._set_data({x_input: X_full, target_input: Y_onehot}, seed)

    def _set_data(self, data: Mapping[Tensor, np.ndarray], seed: int) -> None:
        names = self._step.name_of
        self._dataset = samples(self, {names.get(port.uid, "?"): array for port, array in data.items()}), seed

    def _batch(self, step: int) -> dict[str, np.ndarray]:
        """What a step takes of the data that were set."""
        if self._dataset is None:
            raise AneforgeError("data: the step got none. Pass the arrays of a batch, or call set_dataset first.")
        arrays, seed = self._dataset
        count, batch = len(next(iter(arrays.values()))), self.data_inputs[0].shape[0]
        places = batch_of(count, batch, seed, step)
        return arrays if count == batch else {name: array[places] for name, array in arrays.items()}

    def loss(self) -> float:
        """The loss of the last batch that was drawn, with the parameters as they are now."""
        return self._run((), self._batch(max(self.steps - 1, 0))).loss

    def accuracy(self, X: np.ndarray, y_labels: np.ndarray) -> float:  # noqa: N803
        """The share of samples whose largest logit is that of their label; the loss is a cross entropy."""
        if not isinstance(self.objective, CEHandle):
            raise AneforgeError("accuracy: the loss has no logits. Train with af.softmax_cross_entropy.")
        labels = np.asarray(y_labels).reshape(-1)
        return float((self.predict(self.objective.logits, X).argmax(-1).reshape(-1) == labels).mean())

    def release(self) -> None:
        """Give back the memory of the programs; the trainer cannot run any more. ``values`` stay."""
        for model in (self._step.model, *self._predictors.values()):
            model.release()

    def step(self, *arrays: np.ndarray, **named: np.ndarray) -> float:
        """One step on a batch, in the order of ``data_inputs`` or by name; returns the loss before it. Without arrays
        the batch is drawn from the data that were set."""
        if not arrays and not named and self.data_inputs:
            named = self._batch(self.steps)
        result = self._run(arrays, named)
        if not math.isfinite(result.loss):
            raise AneforgeError(
                f"step {self.steps + 1}: the loss is {result.loss} on {chip_label(self.target.name)}"
                f"{_first(result.run.first_non_finite)}. Lower the rate, or look for the op with aneforge gradcheck."
            )
        if result.finite:
            self._at = replace(self._at, state=self._next(result), steps=self.steps + 1, in_a_row=0)
        else:
            self._skip(result)
        self.guard.warn_if_clamped(stacklevel=3)
        return result.loss

    def gradients(self, *arrays: np.ndarray, **named: np.ndarray) -> dict[Tensor, np.ndarray]:
        """The gradients on a batch under the chip's arithmetic, without the loss scale, in float32; changes nothing.

        Only with the optimiser on the host: in the program of the other, gradients are no outputs.
        """
        if self.on_device:
            raise AneforgeError(
                "gradients: the program holds the optimiser. Make a Trainer with device_optimizer=False."
            )
        result = self._run(arrays, named)
        scale = np.float32(result.scale)
        return {p: g.astype(np.float32) / scale for p, g in zip(self.params, result.parts, strict=True)}

    def _run(self, arrays: Sequence[np.ndarray], named: Mapping[str, np.ndarray]) -> StepResult:
        if self._step.model.released:
            raise AneforgeError("step: the trainer was released and cannot run. Make another one.")
        data = self._step.checked(arrays, named)
        return self._step.run(data, self._at.state, self.lr, self._at.scale, self.resident)

    def _next(self, result: StepResult) -> OptimiserState:
        if self.on_device:
            return OptimiserState(result.parts, result.slots, self._at.state.updates + 1)
        return self._optimiser.updated(self._at.state, result.parts, self.lr, result.scale)

    def _skip(self, result: StepResult) -> None:
        """Leave the step out, as ``overflow`` says."""
        where = _first(result.run.first_non_finite)
        chip = chip_label(self.target.name)
        in_a_row = self._at.in_a_row + 1
        if self.overflow == "error" or in_a_row > _MOST_SKIPPED:
            more = f" for {in_a_row} steps in a row" if in_a_row > 1 else ""
            raise AneforgeError(
                f"step {self.steps + 1}: a gradient is not finite on {chip}{more}{where}; the loss scale is "
                f"{self.loss_scale:g}. Lower it, or pass overflow='halve'."
            )
        first = not self.skipped
        halves = self.overflow == "halve"
        after = self._rescaled(self.loss_scale / 2) if halves else self._at
        self._at = replace(after, steps=self.steps + 1, skipped=self.skipped + 1, in_a_row=in_a_row)
        if first:
            halved = f", and the loss scale is now {self.loss_scale:g}" if halves else ""
            warnings.warn(
                f"step {self.steps}: a gradient is not finite on {chip}{where}; the step is left out{halved}. "
                "Further ones are counted in Trainer.skipped",
                TrainingWarning,
                stacklevel=4,
            )

    def fit(
        self,
        data: Sequence[np.ndarray] | Mapping[str, np.ndarray],
        steps: int,
        seed: int = 0,
        checkpoint: str | Path | None = None,
        every: int = 0,
        progress: bool | Progress | None = None,
    ) -> TrainingHistory:
        """Train until ``steps`` steps are done in all, counting those before a resume.

        ``data`` has one array for each data input, all samples along its first axis; batches are drawn from ``seed``
        and the number of the step. ``checkpoint`` is a file that is written at the end, after every ``every`` steps,
        and when Ctrl-C or an error ends the loop. ``progress`` shows a bar on stderr: None only on a terminal, or a
        function that hears how many steps are done, of how many, and the loss and the rate in words.
        """
        return fit(self, data, steps, seed, checkpoint, every, progress)

    def predict(self, out: Tensor, *arrays: np.ndarray) -> np.ndarray:
        """The value of a tensor with the parameters as they are now, under the chip's arithmetic, in float32.

        Arrays are those of the tensor's inputs, in order of creation, with any number of samples along the first
        axis: they are run in batches of the size that the graph was built for.
        """
        model = self._predictors.get(out.uid)
        if model is None:
            model = self._predictors[out.uid] = build(out, self.target, self.mode)
        return predicted(model, arrays, {param.uid: value for param, value in self.values.items()})

    # Checkpoints.

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"name": self._optimiser.name, "on_engine": self.on_device}
        if isinstance(self._optimiser, Adam):
            settings |= {"betas": list(self._optimiser.betas), "eps": self._optimiser.eps}
        return settings

    def save(self, path: str | Path) -> None:
        """Write a checkpoint: one file, whole or not at all."""
        names = tuple(self._step.name_of[param.uid] for param in self.params)
        settings = self._settings()
        at = {"steps": self.steps, "skipped": self.skipped, "lr": self.lr, "loss_scale": self.loss_scale}
        kept = Checkpoint(self.state, self._fingerprint, settings, self.target.name, names=names, **at)
        write_checkpoint(path, kept)

    def load(self, path: str | Path) -> None:
        """Continue from a checkpoint, to the same bits as a run that was never interrupted.

        One of another graph, of other parameters or of another optimiser is refused. The chip may be another one:
        the state goes on under its arithmetic.
        """
        file, saved = Path(path).name, read_checkpoint(path)
        if saved.model != self._fingerprint:
            raise LoadError(
                f"{file}: a checkpoint of another model (parameters {', '.join(saved.names[:4])}). Use the graph "
                "that it was saved from."
            )
        if saved.optimiser != self._settings():
            raise LoadError(
                f"{file}: the checkpoint is of {_described(saved.optimiser)}; this trainer has "
                f"{_described(self._settings())}. Make the trainer with the same optimiser."
            )
        shapes = [param.shape for param in self.params]
        for arrays in (saved.state.values, *saved.state.slots.values()):
            kinds = {array.dtype for array in arrays}
            if [array.shape for array in arrays] != shapes or kinds != {self._dtype}:
                raise LoadError(f"{file}: the arrays have other shapes or types than the parameters.")
        self.lr = saved.lr
        self._at = _Position(self._kept_as(saved.state), saved.loss_scale, saved.steps, saved.skipped)

    @property
    def _dtype(self) -> np.dtype:
        return np.dtype(np.float16 if self.on_device else np.float32)


def predicted(model: Model, arrays: Sequence[np.ndarray], values: Mapping[int, np.ndarray]) -> np.ndarray:
    """What a model gives for any number of samples, in batches of its own size; ``values`` are those of parameters, by
    the number of their node."""
    names, ports = model.graph.names(), model.graph.inputs
    if len(arrays) != len(ports):
        listing = ", ".join(names[port.uid] for port in ports)
        raise AneforgeError(f"predict: {len(arrays)} arrays were given; the tensor takes {listing}.")
    params = {names[uid]: value for uid, value in values.items() if uid in names}
    batch, count = ports[0].shape[0], len(arrays[0])
    results = []
    for first in range(0, count, batch):
        places = np.minimum(np.arange(first, first + batch), count - 1)  # the last batch is filled up
        feeds = {names[port.uid]: np.asarray(array)[places] for port, array in zip(ports, arrays, strict=True)}
        done = model.run({**feeds, **params}).outputs
        results.append(next(iter(done.values())).astype(np.float32)[: count - first])
    return np.concatenate(results)


def _first(entry: TraceEntry | None) -> str:
    """The op that gave the first number that is not finite."""
    if entry is None:
        return ""
    nodes = ", ".join(entry.nodes or entry.sources)
    return f" (first at {entry.op} of {nodes})" if nodes else f" (first at {entry.op})"


def _described(settings: Mapping[str, Any]) -> str:
    where = "on the engine" if settings.get("on_engine") else "on the host"
    more = "".join(f" {name} {value}" for name, value in settings.items() if name not in ("name", "on_engine"))
    return f"{settings.get('name')} {where}{more}"
