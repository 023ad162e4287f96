"""``af.UnrolledTrainer``: several steps of Adam as one program, so that one call trains several batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aneforge.chips.chip import Target
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.formats.arguments import chip_of
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor
from aneforge.study.model import Model, build
from aneforge.train.backward import Objective, backward_from, checked_scale, loss_of, root_of
from aneforge.train.loop import batch_of
from aneforge.train.losses import mse, softmax_cross_entropy
from aneforge.train.optimisers import Adam, OptimiserState
from aneforge.train.trainer import predicted

KINDS: dict[str, Callable[[Tensor, Tensor], Objective]] = {"ce": softmax_cross_entropy, "mse": mse}


class UnrolledTrainer:
    """Train with as many Adam steps in one program as there are inputs in ``x_inputs``.

    ``forward(params, x)`` builds the logits (``kind="ce"``) or the prediction (``"mse"``) of a batch. ``x_inputs`` and
    ``t_inputs`` are the batch and its target of each step, ``dataset`` the arrays that batches are drawn from.
    Parameters and moments are fp16 and go from a call to the next as they are; with ``resident`` or without, the
    numbers are the same.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        forward: Callable[[list[Tensor], Tensor], Tensor],
        kind: str,
        x_inputs: Sequence[Tensor],
        t_inputs: Sequence[Tensor],
        dataset: tuple[np.ndarray, np.ndarray],
        lr: float,
        loss_scale: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        seed: int = 0,
        resident: bool = True,
        *,
        target: str | int | Target | None = None,
        mode: str = "exact",
    ) -> None:
        if kind not in KINDS:
            raise ArgumentError("kind", f"{kind!r} is unknown; choose one: {', '.join(KINDS)}.")
        if len(x_inputs) != len(t_inputs) or not x_inputs:
            raise ArgumentError(
                "x_inputs", f"{len(x_inputs)} inputs and {len(t_inputs)} targets; give one pair a step."
            )
        self._adam = Adam(params, lr, betas, eps)
        self.params, self.seed, self.resident, self.steps = self._adam.params, seed, resident, 0
        self._scale = checked_scale(loss_scale)
        self._data = tuple(np.asarray(array) for array in dataset)
        self._steps = list(zip(x_inputs, t_inputs, strict=True))
        self._target, self._mode = chip_of(target), mode
        self._forward, self._predictor = forward, None
        self._state: OptimiserState = self._adam.start(np.float16)
        self._model = self._unrolled(KINDS[kind])

    def _unrolled(self, objective_of: Callable[[Tensor, Tensor], Objective]) -> Model:
        slots = [{name: graph_input(param.shape) for name in self._adam.slots} for param in self.params]
        self._slots, self._rates, self._factors = slots, [], []
        values, losses = list(self.params), []
        for x, wanted in self._steps:
            objective = objective_of(self._forward(values, x), wanted)
            root = root_of(objective)
            factor = graph_input((1,) * root.tensor.ndim)
            gradients = backward_from(root.gradient(factor), root.tensor, values)
            rates = {name: graph_input((1,)) for name in self._adam.rates}
            updated = [
                self._adam.on_engine(value, gradients[value], kept, rates)
                for value, kept in zip(values, slots, strict=True)
            ]
            values, slots = [value for value, _ in updated], [kept for _, kept in updated]
            losses.append(loss_of(objective))
            self._rates.append(rates)
            self._factors.append((factor, *root.stored(self._scale)))
        moments = [kept[name] for name in self._adam.slots for kept in slots]
        return build(Graph([*losses, *values, *moments]), self._target, self._mode)

    @property
    def values(self) -> dict[Tensor, np.ndarray]:
        """What each parameter is now, in fp16."""
        return dict(zip(self.params, self._state.values, strict=True))

    def step(self) -> list[float]:
        """Run the program once; the loss before each of its steps."""
        names = self._model.graph.names()
        state, feeds = self._state, {}
        for param, value in self.values.items():
            feeds[names[param.uid]] = value
        for name in self._adam.slots:
            for kept, value in zip(self._slots, state.slots[name], strict=True):
                feeds[names[kept[name].uid]] = value
        xs, targets = self._data
        for number, (x, wanted) in enumerate(self._steps):
            places = batch_of(len(xs), x.shape[0], self.seed, self.steps + number)
            feeds |= {names[x.uid]: xs[places], names[wanted.uid]: targets[places]}
            factor, stored, carried = self._factors[number]
            feeds[names[factor.uid]] = np.full(factor.shape, stored)
            at = OptimiserState((), {}, state.updates + number)
            for name, rate in self._adam.rates_of(at, self._adam.lr, carried).items():
                feeds[names[self._rates[number][name].uid]] = np.full((1,), rate)
        taken = {port.name for port in self._model.program.inputs}
        outputs = list(self._model.run({n: a for n, a in feeds.items() if n in taken}).outputs.values())
        count, losses = len(self.params), [float(array.reshape(-1)[0]) for array in outputs[: len(self._steps)]]
        arrays = outputs[len(self._steps) :]
        if not all(np.isfinite(array).all() for array in arrays):
            raise AneforgeError(
                f"step {self.steps + 1}: a parameter is not finite after it. Lower the rate or the loss scale."
            )
        parts = [tuple(arrays[first : first + count]) for first in range(0, len(arrays), count)]
        moments = dict(zip(self._adam.slots, parts[1:], strict=True))
        self._state = OptimiserState(parts[0], moments, state.updates + len(self._steps))
        self.steps += len(self._steps)
        return losses

    def predict(self, X: np.ndarray) -> np.ndarray:  # noqa: N803 - the name that existing code passes
        """What ``forward`` gives for any number of samples, with the parameters as they are now."""
        if self._predictor is None:
            out = self._forward(list(self.params), self._steps[0][0])
            self._predictor = build(out, self._target, self._mode)
        return predicted(self._predictor, [X], {param.uid: value for param, value in self.values.items()})

    def release(self) -> None:
        """Give back the memory of the programs; the trainer cannot run any more."""
        for model in (self._model, self._predictor):
            if model is not None:
                model.release()
