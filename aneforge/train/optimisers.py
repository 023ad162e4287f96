"""Optimisers, each in two forms: on the host in float32, and on the engine as ops of the training program.

Both take gradients that carry the loss scale. On the host, values and moments are float32, and the engine gets them
rounded to fp16. On the engine all of them are fp16. Numbers that change from step to step (the rate, the loss scale,
the bias corrections) enter the program as inputs, so that no step needs another program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aneforge.errors import ArgumentError
from aneforge.graph.ops.elementwise import maximum, times
from aneforge.graph.ops.leaf import as_tensor
from aneforge.graph.tensor import Tensor
from aneforge.train.backward import checked_scale

Arrays = tuple[np.ndarray, ...]
_LEAST = 2.0**-14  # the smallest divisor: below 2^-16 the quotient is infinite on some chips (M5)


@dataclass(frozen=True)
class OptimiserState:
    """What a training run has reached: it is replaced as a whole, so that an interrupt never leaves half a step."""

    values: Arrays
    slots: Mapping[str, Arrays]
    """What the optimiser keeps for each parameter, by name."""
    updates: int = 0
    """Steps that changed the values: the bias correction of Adam counts these."""


class Optimiser:
    """What :class:`SGD` and :class:`Adam` share: parameters, a rate, a loss scale, and the values reached."""

    name = ""
    slots: tuple[str, ...] = ()
    """What it keeps for each parameter."""
    rates: tuple[str, ...] = ()
    """The numbers of a step that the form on the engine takes as inputs."""

    def __init__(self, params: Sequence[Tensor], lr: float, loss_scale: float = 1.0) -> None:
        listed = [params] if isinstance(params, Tensor) else list(params)
        for param in listed:
            if not isinstance(param, Tensor) or param.op != "parameter":
                kind = param.op if isinstance(param, Tensor) else type(param).__name__
                raise ArgumentError("params", f"{kind!r} cannot be trained; pass what af.parameter gives.")
        if not listed:
            raise ArgumentError("params", "the list is empty; make parameters with af.parameter or af.conv_param.")
        self.params: tuple[Tensor, ...] = tuple(listed)
        self.lr = checked_scale(lr, "lr")
        self.loss_scale = checked_scale(loss_scale)
        self.state = self.start()

    def start(self, dtype: Any = np.float32) -> OptimiserState:
        """The state before the first step: start values, and zeros in every slot."""
        values = tuple(_start_value(param).astype(dtype) for param in self.params)
        zeros = {name: tuple(np.zeros(value.shape, dtype) for value in values) for name in self.slots}
        return OptimiserState(values, zeros)

    @property
    def values(self) -> dict[Tensor, np.ndarray]:
        """What each parameter is now."""
        return dict(zip(self.params, self.state.values, strict=True))

    def step(self, gradients: Mapping[Tensor, np.ndarray] | Sequence[np.ndarray]) -> dict[Tensor, np.ndarray]:
        """Change the values by gradients that carry the loss scale, on the host; returns the new values.

        Gradients are given by parameter, or in the order of the parameters.
        """
        self.state = self.updated(self.state, self._in_order(gradients), self.lr, self.loss_scale)
        return self.values

    def _in_order(self, gradients: Mapping[Tensor, np.ndarray] | Sequence[np.ndarray]) -> list[np.ndarray]:
        if isinstance(gradients, Mapping):
            by_uid = {param.uid: array for param, array in gradients.items()}
            missing = [param for param in self.params if param.uid not in by_uid]
            if missing:
                raise ArgumentError(
                    "gradients", f"one for {missing[0].name or missing[0]!r} is missing. Give one for each parameter."
                )
            gradients = [by_uid[param.uid] for param in self.params]
        listed = [np.asarray(array, np.float32) for array in gradients]
        shapes, expected = [array.shape for array in listed], [param.shape for param in self.params]
        if shapes != expected:
            raise ArgumentError("gradients", f"shapes are {shapes}; those of the parameters are {expected}.")
        return listed

    def updated(
        self, state: OptimiserState, gradients: Sequence[np.ndarray], lr: float, loss_scale: float
    ) -> OptimiserState:
        """The next state, in float32."""
        raise NotImplementedError

    def rates_of(self, state: OptimiserState, lr: float, loss_scale: float) -> dict[str, float]:
        """The numbers of the next step, for the form on the engine."""
        raise NotImplementedError

    def on_engine(
        self, value: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], rates: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The next value of one parameter and of its slots, as graph tensors."""
        raise NotImplementedError


class SGD(Optimiser):
    """Plain gradient descent: ``value - lr * gradient``."""

    name = "sgd"
    rates = ("rate", "unscale")

    def updated(
        self, state: OptimiserState, gradients: Sequence[np.ndarray], lr: float, loss_scale: float
    ) -> OptimiserState:
        """The state after one update, on the host."""
        rate = np.float32(lr / loss_scale)
        values = tuple(
            value - rate * np.asarray(gradient, np.float32)
            for value, gradient in zip(state.values, gradients, strict=True)
        )
        return replace(state, values=values, updates=state.updates + 1)

    def rates_of(self, state: OptimiserState, lr: float, loss_scale: float) -> dict[str, float]:
        """The rates that one update on the engine takes as inputs."""
        # Two factors: lr / loss_scale alone may be below what fp16 holds, and a gradient divided first may be lost.
        return {"rate": lr, "unscale": 1 / loss_scale}

    def on_engine(
        self, value: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], rates: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The new value and slots of one parameter, as tensors of the graph."""
        return value - gradient * rates["rate"] * rates["unscale"], {}


class Adam(Optimiser):
    """Adam with bias correction.

    On the engine the second moment is kept as its root, and both moments in units of the scaled gradient (U126): the
    square of a small gradient is zero in fp16, that of a large one infinite.
    """

    name = "adam"
    slots = ("mean", "root")
    rates = ("rate", "eps")

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        loss_scale: float = 1.0,
    ) -> None:
        first, second = (float(beta) for beta in betas)
        if not (0 <= first < 1 and 0 <= second < 1):
            raise ArgumentError("betas", f"{betas!r}: both must be 0 or more and below 1.")
        self.betas = (first, second)
        self.eps = checked_scale(eps, "eps")
        super().__init__(params, lr, loss_scale)

    def updated(
        self, state: OptimiserState, gradients: Sequence[np.ndarray], lr: float, loss_scale: float
    ) -> OptimiserState:
        """The slot ``root`` is the root of the second moment here too, so that both forms have one state."""
        first, second = (np.float32(beta) for beta in self.betas)
        count, one = state.updates + 1, np.float32(1)
        grown = one - first ** np.float32(count), np.sqrt(one - second ** np.float32(count))
        values, means, roots = [], [], []
        for value, mean, root, scaled in zip(
            state.values, state.slots["mean"], state.slots["root"], gradients, strict=True
        ):
            gradient = np.asarray(scaled, np.float32) / np.float32(loss_scale)
            mean = first * mean + (one - first) * gradient  # noqa: PLW2901
            root = np.sqrt(second * np.square(root) + (one - second) * np.square(gradient))  # noqa: PLW2901
            values.append(value - np.float32(lr) * (mean / grown[0]) / (root / grown[1] + np.float32(self.eps)))
            means.append(mean)
            roots.append(root)
        return OptimiserState(tuple(values), {"mean": tuple(means), "root": tuple(roots)}, count)

    def rates_of(self, state: OptimiserState, lr: float, loss_scale: float) -> dict[str, float]:
        """The rates that one update on the engine takes as inputs."""
        count = state.updates + 1
        grown = math.sqrt(1 - self.betas[1] ** count)
        rate = lr * grown / (1 - self.betas[0] ** count)
        return {"rate": rate, "eps": self.eps * loss_scale * grown}

    def on_engine(
        self, value: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], rates: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The new value and slots of one parameter, as tensors of the graph."""
        first, second = self.betas
        mean = times(slots["mean"], first) + times(gradient, 1 - first)
        # Both are divided by the larger one before they are squared: no square is lost or infinite.
        size = gradient.abs()
        larger = maximum(maximum(slots["root"], size), as_tensor(_LEAST))
        squares = times((slots["root"] / larger).square(), second) + times((size / larger).square(), 1 - second)
        share = squares.sqrt()
        # The mean over the root, both over the larger one: neither quotient has a small divisor.
        step = (mean / larger) / maximum(share + rates["eps"] / larger, as_tensor(_LEAST)) * rates["rate"]
        return value - step, {"mean": mean, "root": larger * share}


OPTIMISERS: dict[str, type[Optimiser]] = {"sgd": SGD, "adam": Adam}


def _start_value(param: Tensor) -> np.ndarray:
    assert param.weight is not None
    return param.weight.array
