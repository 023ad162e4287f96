"""Names that existing code imports from ``aneforge.autograd``; they are those of ``aneforge.train``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aneforge.graph.ops.elementwise import maximum, times
from aneforge.graph.ops.leaf import as_tensor, parameter
from aneforge.graph.ops.trainable import conv2d, conv_param
from aneforge.graph.tensor import Tensor
from aneforge.train.backward import backward, backward_from
from aneforge.train.losses import CEHandle, mse, softmax_cross_entropy
from aneforge.train.optimisers import SGD, Adam
from aneforge.train.trainer import Trainer
from aneforge.train.unrolled import UnrolledTrainer

__all__ = [
    "SGD",
    "Adam",
    "CEHandle",
    "Trainer",
    "UnrolledTrainer",
    "adam_step",
    "backward",
    "backward_from",
    "conv2d",
    "conv_param",
    "mse",
    "parameter",
    "softmax_cross_entropy",
]

_LEAST = 2.0**-14  # the smallest normal fp16 number: eps alone is zero there


def adam_step(
    params: Sequence[Tensor],
    m: Sequence[Tensor],
    v: Sequence[Tensor],
    grads: Mapping[Tensor, Tensor],
    lr_t: Tensor | float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """One update of Adam as graph ops: new parameters and moments. ``lr_t`` has the bias correction in it.

    ``v`` is the second moment itself, whose small values fp16 loses; ``UnrolledTrainer`` keeps its root.
    """
    first, second = betas
    means = [times(kept, first) + times(grads[param], 1 - first) for param, kept in zip(params, m, strict=True)]
    squares = [
        times(kept, second) + times(grads[param].square(), 1 - second) for param, kept in zip(params, v, strict=True)
    ]
    least = as_tensor(max(eps, _LEAST))
    updated = [
        param - mean / maximum(square.sqrt(), least) * lr_t
        for param, mean, square in zip(params, means, squares, strict=True)
    ]
    return updated, means, squares
