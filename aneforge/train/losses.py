"""Losses that fp16 can hold: mean squared error, and cross entropy with its gradient at the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aneforge.errors import GraphError
from aneforge.graph.node import entry
from aneforge.graph.ops.leaf import as_tensor
from aneforge.graph.tensor import Tensor


@entry
def mse(y: Tensor, target: Any) -> Tensor:
    """The mean of the squared differences of ``y`` and ``target``, as a tensor of one element."""
    wanted = as_tensor(target, "target")
    if wanted.shape != y.shape:
        raise GraphError(f"mse: y is {list(y.shape)}, the target {list(wanted.shape)}; they must be equal")
    return (y - wanted).square().mean()


@dataclass(frozen=True, eq=False)
class CEHandle:
    """A cross entropy: its ``loss`` (one element), and what ``backward`` starts from.

    The gradient at the logits is ``softmax(logits) - target`` where rows of the target sum to one. It has no logarithm
    and no quotient of small numbers, which the derivative of the loss op by op would have, so ``backward`` and
    ``Trainer`` take the handle itself.
    """

    logits: Tensor
    target: Tensor
    loss: Tensor

    @property
    def samples(self) -> int:
        """How many samples a batch has."""
        return self.logits.shape[0]

    def direction(self) -> Tensor:
        """The gradient of the sum over all samples at the logits; that of the loss is this over ``samples``."""
        return self.logits.softmax(1) * self.target.sum(1) - self.target


@entry
def softmax_cross_entropy(logits: Tensor, target: Any) -> CEHandle:
    """Cross entropy of ``logits`` [N, classes] and ``target``, probabilities of the same shape: the mean over N.

    Stable in fp16: the largest logit is subtracted first, so that no exponential is above 1 and their sum is never 0.
    """
    wanted = as_tensor(target, "target")
    if logits.ndim != 2 or wanted.shape != logits.shape:
        raise GraphError(
            f"softmax_cross_entropy: takes logits [N, classes] and a target of the same shape, not "
            f"{list(logits.shape)} and {list(wanted.shape)}; for class numbers pass np.eye(classes)[numbers]"
        )
    shifted = logits - logits.amax(1)
    surprise = shifted.exp().sum(1).log() - shifted
    return CEHandle(logits, wanted, (surprise * wanted).sum(1).mean())
