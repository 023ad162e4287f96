"""Gradients of a loss as graph tensors, scaled so that fp16 can hold them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.graph import Graph
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import entry, located
from aneforge.graph.ops.leaf import const
from aneforge.graph.reference import gradients
from aneforge.graph.tensor import Tensor
from aneforge.train.losses import CEHandle

Objective = Tensor | CEHandle


@entry
def backward(
    loss: Objective, params: Sequence[Tensor], loss_scale: float = 1.0, stop: Sequence[Tensor] | Tensor | None = None
) -> dict[Tensor, Tensor]:
    """The gradient of ``loss`` for each of ``params``, times ``loss_scale``, as tensors of the graph.

    ``loss`` is a tensor of one element or what :func:`softmax_cross_entropy` gives. Gradients below 6e-8 are zero in
    fp16: a loss scale lifts them above, and the optimiser divides by it. No gradient flows past a tensor in ``stop``.
    """
    root = root_of(loss)
    factor, _ = root.stored(checked_scale(loss_scale))
    seed = root.gradient(const(np.full((1,) * root.tensor.ndim, factor)))
    return _parts(seed, root.tensor, params, stop)


@entry
def backward_from(
    grad_root: Tensor, root: Tensor, params: Sequence[Tensor], stop: Sequence[Tensor] | Tensor | None = None
) -> dict[Tensor, Tensor]:
    """The gradient for each of ``params``, from ``grad_root``, the gradient at ``root``. No gradient flows past
    a tensor in ``stop``."""
    if grad_root.shape != root.shape:
        raise GraphError(f"grad_root is {list(grad_root.shape)} and root {list(root.shape)}; they must be equal")
    return _parts(grad_root, root, params, stop)


def _parts(
    seed: Tensor, root: Tensor, params: Sequence[Tensor], stop: Sequence[Tensor] | Tensor | None
) -> dict[Tensor, Tensor]:
    wanted = checked_params(params, root)
    cut = [stop] if isinstance(stop, Tensor) else list(stop or ())
    parts = gradients(root, wanted, seed=seed, stop=cut)
    for param, part in zip(wanted, parts, strict=True):
        if part is None:
            raise GraphError(f"{_called(param)}: no gradient reaches it; stop cuts every way to it. Change stop")
    return {param: part for param, part in zip(wanted, parts, strict=True) if part is not None}


@dataclass(frozen=True)
class Root:
    """Where a backward pass starts: a tensor, and its gradient from a factor of one element, which is the loss scale
    over ``divisor``. Dividing first keeps a scale of 65536 within fp16."""

    tensor: Tensor
    divisor: int
    gradient: Callable[[Tensor], Tensor]

    def stored(self, loss_scale: float) -> tuple[float, float]:
        """The factor as fp16 holds it, and the loss scale that it stands for, which gradients are divided by."""
        number = loss_scale / self.divisor
        if number > FP16_MAX:
            raise GraphError(
                f"loss_scale {loss_scale:g}: the gradient starts at {number:g}, and fp16 ends at 65504. Use a smaller "
                "scale, or a loss that is a mean(): its scale is divided by the number of elements first"
            )
        factor = float(np.float16(number))
        if not factor:
            raise GraphError(
                f"loss_scale {loss_scale:g}: the gradient starts at {number:g}, zero in fp16. Use a larger one"
            )
        return factor, factor * self.divisor


def root_of(objective: Objective) -> Root:
    """Where the backward pass of a loss starts."""
    if isinstance(objective, CEHandle):
        return Root(objective.logits, objective.samples, lambda factor: objective.direction() * factor)
    loss = loss_of(objective)
    start, divisor = (loss.inputs[0], loss.inputs[0].size) if loss.op == "mean" else (loss, 1)
    repeats = list(start.shape)
    return Root(start, divisor, lambda factor: factor.tile(repeats) if start.size > 1 else factor)


def loss_of(objective: Any) -> Tensor:
    """The tensor that a loss is; refuses what is no loss."""
    loss = objective.loss if isinstance(objective, CEHandle) else objective
    if not isinstance(loss, Tensor):
        raise GraphError(f"the loss is a {type(objective).__name__}; pass a tensor, or af.softmax_cross_entropy(...)")
    if loss.size != 1:
        raise GraphError(f"the loss has shape {list(loss.shape)}; it must be one number. Take its mean() or sum()")
    return loss


def checked_params(params: Iterable[Tensor], root: Tensor) -> list[Tensor]:
    """The tensors that gradients are wanted for; refuses what is no tensor, listed twice, or not below ``root``."""
    listed = [params] if isinstance(params, Tensor) else list(params)
    if not listed:
        raise GraphError("params: the list is empty. Make parameters with af.parameter or af.conv_param")
    known = {node.uid for node in Graph([root]).nodes}
    seen: set[int] = set()
    for param in listed:
        if not isinstance(param, Tensor):
            raise GraphError(f"params: {param!r} cannot have a gradient; pass what af.parameter gives")
        if param.uid in seen:
            raise GraphError(f"params: {_called(param)} is listed twice. Name it once")
        seen.add(param.uid)
        if param.uid not in known:
            raise GraphError(
                f"params: {_called(param)} is not in the graph of the loss. Leave it out, or use it there"
            )
    return listed


def checked_scale(loss_scale: Any, name: str = "loss_scale") -> float:
    """A loss scale: finite and above zero."""
    number = math.nan
    if isinstance(loss_scale, (int, float, np.integer, np.floating)) and not isinstance(loss_scale, bool):
        number = float(loss_scale)
    if not 0 < number < math.inf:
        raise GraphError(f"{name} must be a finite number above 0, not {loss_scale!r}")
    return number


def _called(param: Tensor) -> str:
    return f"{param.name or param!r} at {located(param.where)}"
