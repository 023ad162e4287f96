# pyright: reportMissingImports=false
"""Every core ATen op with a rule, and what else has one, against PyTorch itself in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as fn
from torch.utils._pytree import tree_leaves

import aneforge as af
from aneforge.formats.pytorch.adapter import from_torch
from aneforge.formats.pytorch.host import NATIVE, coverage

aten = torch.ops.aten


def values(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> torch.Tensor:
    """Numbers that fp16 holds, so that only the op can differ."""
    drawn = torch.from_numpy(np.random.default_rng((seed, *shape)).uniform(low, high, shape))
    return drawn.to(torch.float16).to(torch.float32)


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def compare(function: Callable[..., Any], *inputs: torch.Tensor, within: float = 1e-4) -> af.Graph:
    """The meaning of the graph against the function; gives the graph."""
    module = Calls(function)
    graph = from_torch(module.eval(), inputs)
    with torch.no_grad():
        expected = module(*inputs)
    listed = [each for each in tree_leaves(expected) if each is not None]
    used = {each.name for each in graph.inputs}
    feeds = {f"inputs_{i}": each.numpy() for i, each in enumerate(inputs) if f"inputs_{i}" in used}
    found = af.evaluate(graph, feeds)
    assert len(found) == len(listed)
    for got, wanted in zip(found, listed, strict=True):
        want = wanted.numpy().astype(np.float64).reshape(got.shape)
        assert tuple(wanted.shape) in (got.shape, ())
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=within, atol=within)
    return graph


def listed_rightly(name: str, graph: af.Graph) -> None:
    """What the page calls native is one op of the graph, views aside."""
    own = [each for each in graph.operations if str(each.name).split("/")[0].rstrip("_0123456789") == name.strip("_")]
    computes = [each for each in own if each.op not in ("reshape", "cast", "not_equal")]
    assert name not in NATIVE or len(computes) <= 1, str(graph)


X = values(2, 3, 4)
Y = values(2, 3, 4, seed=1)
P = values(2, 3, 4, low=0.25, high=2.0)
UNIT = values(2, 3, 4, low=-0.875, high=0.875)
IMAGE = values(1, 4, 8, 8)
MASK = X > 0
SQUARE = values(4, 4)
AWAY = torch.where((X * 8).frac().abs() < 0.1, X + 0.03125, X).half().float()  # not beside a step

UNARY = {
    "abs": X,
    "acos": UNIT,
    "acosh": P + 1,
    "asin": UNIT,
    "asinh": X,
    "atan": X,
    "atanh": UNIT,
    "ceil": AWAY,
    "cos": X,
    "cosh": X,
    "deg2rad": X,
    "erf": X,
    "erfc": X,
    "exp": X,
    "exp2": X,
    "expm1": X,
    "floor": AWAY,
    "frac": AWAY,
    "gelu": X,
    "hardsigmoid": X,
    "hardswish": X,
    "isfinite": X,
    "isinf": X,
    "isnan": X,
    "log": P,
    "log10": P,
    "log1p": P,
    "log2": P,
    "log_sigmoid": X,
    "logical_not": X,
    "mish": X,
    "neg": X,
    "rad2deg": X,
    "reciprocal": P,
    "relu": X,
    "relu6": X * 4,
    "round": AWAY,
    "rsqrt": P,
    "selu": X,
    "sgn": X,
    "sigmoid": X,
    "sign": X,
    "signbit": X,
    "silu": X,
    "sin": X,
    "sinc": X,
    "sinh": X,
    "sqrt": P,
    "square": X,
    "tan": UNIT,
    "tanh": X,
    "trunc": AWAY,
}


def _function(name: str) -> Callable[..., Any]:
    for home in (torch, fn):
        if hasattr(home, {"log_sigmoid": "logsigmoid"}.get(name, name)):
            return getattr(home, {"log_sigmoid": "logsigmoid"}.get(name, name))
    return getattr(aten, name).default


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    graph = compare(_function(name), UNARY[name])
    listed_rightly(name, graph)
    assert name in NATIVE or len(graph.operations) > 1 or name == "logical_not"


ELEMENTWISE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "add.Tensor": (lambda a, b: a + b, (X, Y)),
    "add.Scalar": (lambda a: aten.add.Scalar(a, 0.3), (X,)),
    "add.alpha": (lambda a, b: torch.add(a, b, alpha=0.3), (X, Y)),
    "add.bool": (lambda a: (a > 0) + (a < 1), (X,)),
    "addcdiv": (lambda a, b, c: torch.addcdiv(a, b, c, value=0.3), (X, Y, P)),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=0.3), (X, Y, P)),
    "atan2": (torch.atan2, (X, Y)),
    "bitwise_and": (lambda a, b: (a > 0) & (b > 0), (X, Y)),
    "bitwise_not": (lambda a: ~(a > 0), (X,)),
    "bitwise_or": (lambda a, b: (a > 0) | (b > 0), (X, Y)),
    "bitwise_xor": (lambda a, b: (a > 0) ^ (b > 0), (X, Y)),
    "clamp": (lambda a: a.clamp(-0.5, 0.75), (X,)),
    "clamp.low": (lambda a: a.clamp(min=0.5), (X,)),
    "clamp.Tensor": (lambda a, b: torch.clamp(a, b - 1, b + 1), (X, Y)),
    "copysign": (torch.copysign, (X, Y)),
    "div.Tensor": (lambda a, b: a / b, (X, P)),
    "div.Scalar": (lambda a: aten.div.Scalar(a, 3.0), (X,)),
    "div.reversed": (lambda a: 1 / a, (P,)),
    "div.floor": (lambda a, b: torch.div(a, b, rounding_mode="floor"), (X, P)),
    "div.trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (X, P)),
    "eq.Scalar": (lambda a: a == 0.5, (torch.tensor([0.5, 1.0, -0.5]),)),
    "eq.Tensor": (lambda a, b: a == b, (X, torch.where(MASK, X, Y))),
    "fmax": (torch.fmax, (X, Y)),
    "fmin": (torch.fmin, (X, Y)),
    "fmod.Scalar": (lambda a: torch.fmod(a, 0.75), (X,)),
    "fmod.Tensor": (torch.fmod, (X, P)),
    "ge": (lambda a, b: a >= b, (X, Y)),
    "gt.Scalar": (lambda a: a > 0.25, (X,)),
    "heaviside": (torch.heaviside, (torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([0.5]))),
    "hypot": (torch.hypot, (X, Y)),
    "le": (lambda a, b: a <= b, (X, Y)),
    "lerp.Scalar": (lambda a, b: torch.lerp(a, b, 0.3), (X, Y)),
    "lerp.Tensor": (torch.lerp, (X, Y, P)),
    "logaddexp": (torch.logaddexp, (X, Y)),
    "logaddexp2": (torch.logaddexp2, (X, Y)),
    "logical_and": (torch.logical_and, (X, Y)),
    "logical_or": (torch.logical_or, (X, Y)),
    "logical_xor": (torch.logical_xor, (X, Y)),
    "logit": (lambda a: torch.logit(a, 0.1), (values(6, low=0.0, high=1.0),)),
    "lt": (lambda a, b: a < b, (X, Y)),
    "masked_fill": (lambda a, b: a.masked_fill(b > 0, -1.5), (X, Y)),
    "maximum": (torch.maximum, (X, Y)),
    "minimum": (torch.minimum, (X, Y)),
    "max.other": (torch.max, (X, Y)),
    "mul.Scalar": (lambda a: a * 0.3, (X,)),
    "mul.Tensor": (lambda a, b: a * b, (X, Y)),
    "mul.bool": (lambda a, b: a * (b > 0), (X, Y)),
    "nan_to_num": (lambda a: torch.nan_to_num(a / 2), (X,)),
    "ne": (lambda a, b: a != b, (X, torch.where(MASK, X, Y))),
    "pow.2": (lambda a: a**2, (X,)),
    "pow.3": (lambda a: a**3, (X,)),
    "pow.-2": (lambda a: a**-2, (P,)),
    "pow.5": (lambda a: a**5, (X,)),
    "pow.half": (lambda a: a**0.5, (P,)),
    "pow.Scalar": (lambda a: torch.pow(3.0, a), (X,)),
    "pow.Tensor_Scalar": (lambda a: a**1.7, (P,)),
    "pow.Tensor_Tensor": (torch.pow, (P, X)),
    "remainder.Scalar": (lambda a: torch.remainder(a, 0.75), (X,)),
    "remainder.Tensor": (torch.remainder, (X, P)),
    "round.decimals": (lambda a: torch.round(a, decimals=1), (torch.tensor([0.3125, 1.0625, -2.1875]),)),
    "rsub": (lambda a: 1.25 - a, (X,)),
    "sub.Tensor": (lambda a, b: a - b, (X, Y)),
    "sub.Scalar": (lambda a: aten.sub.Scalar(a, 0.3), (X,)),
    "where.self": (lambda a, b: torch.where(a > 0, a, b), (X, Y)),
    "where.Scalar": (lambda a: torch.where(a > 0, a, 0.5), (X,)),
    "where.bool": (lambda a, b: torch.where(a > 0, b > 0, b < 1), (X, Y)),
    "xlogy": (torch.xlogy, (X.clamp(min=0), P)),
    "rank 0": (lambda a: a * a.sum() + a.mean(), (X,)),
    "celu": (lambda a: fn.celu(a, 0.7), (X,)),
    "elu": (lambda a: fn.elu(a, 0.7), (X,)),
    "glu": (lambda a: fn.glu(a, -1), (X,)),
    "hardshrink": (lambda a: fn.hardshrink(a, 0.5), (X,)),
    "hardtanh": (lambda a: fn.hardtanh(a, -0.5, 0.75), (X,)),
    "leaky_relu": (lambda a: fn.leaky_relu(a, 0.3), (X,)),
    "prelu": (nn.PReLU(4), (IMAGE,)),
    "prelu.one": (nn.PReLU(1), (IMAGE,)),
    "rrelu": (lambda a: fn.rrelu(a, 0.25, 0.5), (X,)),
    "softplus": (lambda a: fn.softplus(a, 2.0), (X,)),
    "softshrink": (lambda a: fn.softshrink(a, 0.5), (X,)),
    "softsign": (fn.softsign, (X,)),
    "tanhshrink": (fn.tanhshrink, (X,)),
    "threshold": (lambda a: fn.threshold(a, 0.5, 0.25), (X,)),
    "dropout": (lambda a: fn.dropout(a, 0.5, training=False), (X,)),
    "to.bool": (lambda a: a.to(torch.bool), (X.round(),)),
    "to.int": (lambda a: a.to(torch.int32), (AWAY * 4,)),
    "to.half": (lambda a: a.to(torch.bfloat16).to(torch.float32) * 1.0, (torch.tensor([0.5, 1.0, 2.0]),)),
}

MOVES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "alias": (lambda a: aten.alias.default(a) + 1, (X,)),
    "as_strided": (lambda a: torch.as_strided(a, (2, 2), (12, 4), 1), (X,)),
    "cat": (lambda a, b: torch.cat([a, b], 1), (X, Y)),
    "cat.bool": (lambda a, b: torch.cat([a > 0, b > 0], 1), (X, Y)),
    "chunk": (lambda a: torch.chunk(a, 3, 2), (X,)),
    "clone": (lambda a: a.clone(), (X,)),
    "constant_pad_nd": (lambda a: fn.pad(a, (1, 2, 0, 1), value=0.5), (X,)),
    "constant_pad_nd.negative": (lambda a: fn.pad(a, (-1, 2)), (X,)),
    "copy": (lambda a, b: aten.copy.default(a, b[:1]), (X, Y)),
    "diagonal": (lambda a: torch.diagonal(a, 1, 1, 2), (X,)),
    "expand": (lambda a: a[:, :1].expand(2, 5, 4), (X,)),
    "fill": (lambda a: a + torch.full_like(a, 0.5) + torch.ones_like(a) + torch.zeros_like(a), (X,)),
    "flatten": (lambda a: a.flatten(1), (X,)),
    "flip": (lambda a: a.flip(0, 2), (X,)),
    "movedim": (lambda a: a.movedim(0, 2), (X,)),
    "narrow": (lambda a: a.narrow(2, 1, 2), (X,)),
    "pad.circular": (lambda a: fn.pad(a, (2, 1, 1, 1), mode="circular"), (IMAGE,)),
    "permute": (lambda a: a.permute(2, 0, 1), (X,)),
    "pixel_shuffle": (lambda a: fn.pixel_shuffle(a, 2), (IMAGE,)),
    "pixel_unshuffle": (lambda a: fn.pixel_unshuffle(a, 2), (IMAGE,)),
    "channel_shuffle": (lambda a: fn.channel_shuffle(a, 2), (IMAGE,)),
    "reflection_pad1d": (lambda a: fn.pad(a, (1, 2), mode="reflect"), (X,)),
    "reflection_pad2d": (lambda a: fn.pad(a, (1, 2, 3, 0), mode="reflect"), (IMAGE,)),
    "reflection_pad3d": (lambda a: fn.pad(a, (1, 1, 1, 1, 1, 1), mode="reflect"), (values(1, 2, 3, 3, 3),)),
    "repeat": (lambda a: a.repeat(2, 1, 2), (X,)),
    "repeat.more": (lambda a: a.repeat(2, 1, 1, 2), (X,)),
    "repeat_interleave": (lambda a: a.repeat_interleave(2, 1), (X,)),
    "replication_pad1d": (lambda a: fn.pad(a, (1, 2), mode="replicate"), (X,)),
    "replication_pad2d": (lambda a: fn.pad(a, (1, 2, 3, 0), mode="replicate"), (IMAGE,)),
    "replication_pad3d": (lambda a: fn.pad(a, (1, 1, 1, 1, 1, 1), mode="replicate"), (values(1, 2, 3, 3, 3),)),
    "roll": (lambda a: a.roll((1, -1), (0, 2)), (X,)),
    "roll.flat": (lambda a: a.roll(5), (X,)),
    "rot90": (lambda a: a.rot90(1, (1, 2)), (X,)),
    "select": (lambda a: a[:, 1], (X,)),
    "slice": (lambda a: a[:, 1:], (X,)),
    "slice.step": (lambda a: a[:, :, ::2], (X,)),
    "split_with_sizes": (lambda a: a.split([1, 3], 2), (X,)),
    "split": (lambda a: a.split(3, 2), (X,)),
    "squeeze": (lambda a: a[:, :1].squeeze(), (X,)),
    "squeeze.dims": (lambda a: aten.squeeze.dims(a[:, :1, :1], [1, 2]), (X,)),
    "stack": (lambda a, b: torch.stack([a, b], 1), (X, Y)),
    "t": (lambda a: a.t(), (SQUARE,)),
    "transpose": (lambda a: a.transpose(-1, 0), (X,)),
    "tril": (lambda a: a.tril(-1), (SQUARE,)),
    "triu": (lambda a: a.triu(1), (SQUARE,)),
    "unbind": (lambda a: a.unbind(1), (X,)),
    "unfold": (lambda a: a.unfold(2, 2, 1), (X,)),
    "unsqueeze": (lambda a: a.unsqueeze(-1), (X,)),
    "view": (lambda a: a.view(6, 4), (X,)),
    "col2im": (lambda a: fn.fold(a, (6, 6), 3, padding=1, stride=2), (values(1, 18, 9),)),
    "im2col": (lambda a: fn.unfold(a, 3, dilation=2, padding=1, stride=2), (IMAGE,)),
    "embedding.known": (lambda a: a[torch.tensor([2, 0, 2])], (SQUARE,)),
    "gather.known": (lambda a: a.gather(2, torch.tensor([[[0, 3]] * 3] * 2)), (X,)),
    "index.two": (lambda a: a[:, torch.tensor([0, 2]), torch.tensor([1, 3])], (X,)),
    "index.apart": (lambda a: a[torch.tensor([0, 1]), :, torch.tensor([1, 3])], (X,)),
    "index.negative": (lambda a: a[:, torch.tensor([-1, 0])], (X,)),
    "index_select": (lambda a: a.index_select(1, torch.tensor([2, 0])), (X,)),
    "index_add": (lambda a, b: a.index_add(1, torch.tensor([2, 2, 0]), b), (X, Y)),
    "index_copy": (lambda a, b: a.index_copy(1, torch.tensor([2, 0]), b[:, :2]), (X, Y)),
    "index_fill": (lambda a: a.index_fill(1, torch.tensor([2, 0]), 0.5), (X,)),
    "index_put": (lambda a, b: a.index_put((torch.tensor([1, 0]),), b), (X, Y)),
    "index_put.two": (lambda a: a.index_put((torch.tensor([1, 0]), torch.tensor([2, 1])), torch.ones(4)), (X,)),
    "index_put.mask": (lambda a, b: a.index_put((b > 0,), torch.tensor(0.5)), (X, Y)),
    "index_put.add": (
        lambda a: a.index_put((torch.tensor([1, 1]),), torch.ones(2, 3, 4), accumulate=True),
        (X,),
    ),
    "scatter.src": (lambda a, b: a.scatter(2, torch.tensor([[[0, 3]] * 3] * 2), b), (X, Y)),
    "scatter.value": (lambda a: a.scatter(2, torch.tensor([[[0, 3]] * 3] * 2), 0.5), (X,)),
    "scatter_add": (lambda a, b: a.scatter_add(2, torch.tensor([[[0, 0]] * 3] * 2), b), (X, Y)),
    "scatter_reduce": (lambda a, b: a.scatter_reduce(2, torch.tensor([[[0, 0]] * 3] * 2), b, "sum"), (X, Y)),
    "select_scatter": (lambda a, b: torch.select_scatter(a, b[:, 0], 1, 2), (X, Y)),
    "slice_scatter": (lambda a, b: torch.slice_scatter(a, b[:, :2], 1, 1, 3), (X, Y)),
    "slice_scatter.step": (lambda a, b: torch.slice_scatter(a, b[:, :, :2], 2, 0, 4, 2), (X, Y)),
    "take": (lambda a: torch.take(a, torch.tensor([[3, 0], [5, 5]])), (X,)),
    "windows of rank 6": (
        lambda a: a.view(1, 2, 2, 2, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(4, 8, 8) * 1.0,
        (IMAGE,),
    ),
    "all axes of rank 6": (
        lambda a: (a.view(2, 2, 2, 2, 4, 4) * 2).permute(5, 3, 1, 4, 2, 0).reshape(16, 16),
        (IMAGE,),
    ),
    "a part of rank 6": (
        lambda a: a.view(2, 2, 2, 2, 4, 4).permute(3, 0, 5, 1, 4, 2).select(0, 1).reshape(4, 32),
        (IMAGE,),
    ),
    "stretched rank 6": (
        lambda a: a[:, :, :, None, :, None].expand(1, 4, 8, 2, 8, 3).reshape(1, 4, 16, 24),
        (IMAGE,),
    ),
}

PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "addmm": (lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2.0), (SQUARE, values(4, 3), values(3, 4))),
    "addmv": (torch.addmv, (values(4), SQUARE, values(4, seed=3))),
    "baddbmm": (torch.baddbmm, (values(2, 3, 3), X, Y.transpose(1, 2).contiguous())),
    "bilinear": (nn.Bilinear(4, 3, 5).half().float(), (values(2, 4), values(2, 3))),
    "bmm": (lambda a, b: torch.bmm(a, b.transpose(1, 2)), (X, Y)),
    "cdist": (lambda a, b: torch.cdist(a, b, p=2.0), (X, Y)),
    "cdist.1": (lambda a, b: torch.cdist(a, b, p=1.0), (X, Y)),
    "conv1d": (nn.Conv1d(3, 6, 3, padding=1, stride=2).half().float(), (X,)),
    "conv1d.same": (nn.Conv1d(3, 6, 2, padding="same").half().float(), (X,)),
    "conv2d": (nn.Conv2d(4, 6, (3, 5), padding=(1, 2), stride=(2, 1)).half().float(), (IMAGE,)),
    "conv2d.groups": (nn.Conv2d(4, 8, 3, groups=4, bias=False).half().float(), (IMAGE,)),
    "conv2d.dilated": (nn.Conv2d(4, 8, 3, dilation=2, padding=2).half().float(), (IMAGE,)),
    "conv2d.one sample": (nn.Conv2d(4, 8, 3).half().float(), (IMAGE[0],)),
    "conv3d": (nn.Conv3d(2, 3, 2, padding=1).half().float(), (values(1, 2, 3, 4, 4),)),
    "conv_transpose1d": (nn.ConvTranspose1d(3, 5, 3, stride=2, padding=1).half().float(), (X,)),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1, groups=2).half().float(), (IMAGE,)),
    "conv_transpose2d.added": (
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1).half().float(),
        (IMAGE,),
    ),
    "cosine_similarity": (lambda a, b: fn.cosine_similarity(a, b, -1), (X, Y)),
    "cumsum": (lambda a: a.cumsum(1), (X,)),
    "dot": (torch.dot, (values(4), values(4, seed=2))),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (X, Y)),
    "einsum.three": (lambda a, b, c: torch.einsum("bij,bkj,kl->bil", a, b, c), (X, Y, values(3, 2))),
    "einsum.to one": (lambda a, b: torch.einsum("bij,bij->", a, b), (X, Y)),
    "linear": (nn.Linear(4, 5).half().float(), (X,)),
    "linear.line": (nn.Linear(4, 5).half().float(), (values(4),)),
    "matmul": (lambda a: a @ torch.ones(4, 3), (X,)),
    "mm": (torch.mm, (SQUARE, SQUARE.t().contiguous())),
    "mv": (torch.mv, (SQUARE, values(4))),
    "outer": (torch.outer, (values(4), values(3))),
    "pairwise_distance": (fn.pairwise_distance, (values(3, 4), values(3, 4, seed=5))),
    "sdpa": (fn.scaled_dot_product_attention, (values(1, 2, 5, 4), values(1, 2, 6, 4), values(1, 2, 6, 4, seed=1))),
    "sdpa.batch": (fn.scaled_dot_product_attention, (values(2, 2, 5, 4), values(2, 2, 6, 4), values(2, 2, 6, 3))),
    "sdpa.causal": (
        lambda a, b: fn.scaled_dot_product_attention(a, b, b, is_causal=True),
        (values(2, 2, 5, 4), values(2, 2, 5, 4, seed=1)),
    ),
    "sdpa.mask": (
        lambda a, b, m: fn.scaled_dot_product_attention(a, b, b, attn_mask=m > -1.0),
        (values(1, 2, 5, 4), values(1, 2, 6, 4), values(5, 6)),
    ),
    "sdpa.added": (
        lambda a, b, m: fn.scaled_dot_product_attention(a, b, b, attn_mask=m, scale=0.3),
        (values(2, 2, 5, 4), values(2, 2, 6, 4), values(2, 1, 5, 6)),
    ),
    "sdpa.grouped": (
        lambda a, b: fn.scaled_dot_product_attention(a, b, b, enable_gqa=True),
        (values(1, 4, 5, 4), values(1, 2, 6, 4)),
    ),
}

STATISTICS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "all": (lambda a: (a > -1).all(1), (X,)),
    "amax": (lambda a: a.amax((0, 2)), (X,)),
    "amin": (lambda a: a.amin(1, keepdim=True), (X,)),
    "aminmax": (lambda a: torch.aminmax(a, dim=1), (X,)),
    "any": (lambda a: (a > 1).any(), (X,)),
    "any.dim": (lambda a: (a > 1).any(1), (X,)),
    "any.dims": (lambda a: aten.any.dims(a > 1, [0, 1]), (X,)),
    "argmax": (lambda a: a.argmax(1), (X,)),
    "argmax.whole": (lambda a: a.argmax(), (X,)),
    "argmin": (lambda a: a.argmin(-1, keepdim=True), (X,)),
    "argsort": (lambda a: a.argsort(1), (X,)),
    "batch_norm": (nn.BatchNorm2d(4), (IMAGE,)),
    "batch_norm.lines": (nn.BatchNorm1d(4), (values(3, 4),)),
    "count_nonzero": (lambda a: torch.count_nonzero(a > 0, 1), (X,)),
    "group_norm": (nn.GroupNorm(2, 4), (IMAGE,)),
    "instance_norm": (nn.InstanceNorm2d(4, affine=True), (IMAGE,)),
    "instance_norm.plain": (fn.instance_norm, (IMAGE,)),
    "layer_norm": (nn.LayerNorm(4), (X,)),
    "layer_norm.two": (nn.LayerNorm([3, 4]), (X,)),
    "linalg_vector_norm.no axes": (lambda a: torch.linalg.vector_norm(a, 2.0, dim=()), (X,)),
    "linalg_vector_norm": (lambda a: torch.linalg.vector_norm(a, 3.0, dim=1), (X,)),
    "local_response_norm": (lambda a: fn.local_response_norm(a, 3), (IMAGE,)),
    "log_softmax": (lambda a: a.log_softmax(1), (X,)),
    "logsumexp": (lambda a: a.logsumexp((0, 2)), (X,)),
    "max.default": (lambda a: a.max(), (X,)),
    "max.dim": (lambda a: a.max(1), (X,)),
    "max.dim.value": (lambda a: a.max(1)[0], (X,)),
    "mean": (lambda a: a.mean(), (X,)),
    "mean.dim": (lambda a: a.mean((0, 2), keepdim=True), (X,)),
    "min.default": (lambda a: a.min(), (X,)),
    "min.dim": (lambda a: a.min(2), (X,)),
    "nansum": (lambda a: a.nansum(1), (X,)),
    "norm.1": (lambda a: a.norm(1, dim=1), (X,)),
    "normalize": (lambda a: fn.normalize(a, dim=1), (X,)),
    "prod": (lambda a: a.prod(), (X,)),
    "prod.dim": (lambda a: a.prod(1), (X,)),
    "rms_norm": (nn.RMSNorm(4), (X,)),
    "softmax": (lambda a: a.softmax(1), (X,)),
    "softmin": (lambda a: fn.softmin(a, 1), (X,)),
    "sort": (lambda a: a.sort(1), (X,)),
    "sort.descending": (lambda a: a.sort(-1, descending=True)[0], (X,)),
    "std": (lambda a: a.std(1), (X,)),
    "std.whole": (lambda a: a.std(), (X,)),
    "sum": (lambda a: a.sum(), (X,)),
    "sum.dim": (lambda a: a.sum((0, 1)), (X,)),
    "sum.bool": (lambda a: (a > 0).sum(1), (X,)),
    "topk": (lambda a: a.topk(2, 2), (X,)),
    "topk.smallest": (lambda a: a.topk(2, 1, largest=False)[0], (X,)),
    "trace": (torch.trace, (SQUARE,)),
    "var": (lambda a: a.var(1), (X,)),
    "var.no axes": (lambda a: a.var(()), (X,)),
    "var.biased": (lambda a: a.var((0, 1), correction=0, keepdim=True), (X,)),
    "var_mean": (lambda a: torch.var_mean(a, 1), (X,)),
}

SPACE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "adaptive_avg_pool1d": (lambda a: fn.adaptive_avg_pool1d(a, 2), (X,)),
    "adaptive_avg_pool2d": (lambda a: fn.adaptive_avg_pool2d(a, (3, 5)), (IMAGE,)),
    "adaptive_avg_pool2d.even": (lambda a: fn.adaptive_avg_pool2d(a, 4), (IMAGE,)),
    "adaptive_avg_pool2d.one": (lambda a: fn.adaptive_avg_pool2d(a, 1), (IMAGE,)),
    "adaptive_avg_pool3d": (lambda a: fn.adaptive_avg_pool3d(a, 2), (values(1, 2, 3, 4, 5),)),
    "adaptive_max_pool2d": (lambda a: fn.adaptive_max_pool2d(a, (3, 5)), (IMAGE,)),
    "avg_pool1d": (lambda a: fn.avg_pool1d(a, 2), (X,)),
    "avg_pool2d": (lambda a: fn.avg_pool2d(a, 3, 2, 1), (IMAGE,)),
    "avg_pool2d.ceil": (lambda a: fn.avg_pool2d(a, 3, 2, 1, ceil_mode=True, count_include_pad=False), (IMAGE,)),
    "avg_pool2d.divisor": (lambda a: fn.avg_pool2d(a, 3, 2, 1, divisor_override=5), (IMAGE,)),
    "avg_pool3d": (lambda a: fn.avg_pool3d(a, 2), (values(1, 2, 4, 4, 4),)),
    "max_pool1d": (lambda a: fn.max_pool1d(a, 2), (X,)),
    "max_pool2d": (lambda a: fn.max_pool2d(a, 3, 2, 1), (IMAGE,)),
    "max_pool2d.ceil": (lambda a: fn.max_pool2d(a, 3, 2, ceil_mode=True), (IMAGE,)),
    "max_pool2d.dilated": (lambda a: fn.max_pool2d(a, 2, 1, dilation=2), (IMAGE,)),
    "max_pool3d": (lambda a: fn.max_pool3d(a, 2), (values(1, 2, 4, 4, 4),)),
    "upsample_nearest1d": (lambda a: fn.interpolate(a, scale_factor=2), (X,)),
    "upsample_nearest2d": (lambda a: fn.interpolate(a, scale_factor=2), (IMAGE,)),
    "upsample_nearest2d.odd": (lambda a: fn.interpolate(a, size=(5, 11)), (IMAGE,)),
    "upsample_nearest2d.scale": (lambda a: fn.interpolate(a, scale_factor=1.3), (IMAGE,)),
    "upsample_nearest3d": (lambda a: fn.interpolate(a, scale_factor=2), (values(1, 2, 2, 3, 4),)),
    "upsample_nearest_exact": (lambda a: fn.interpolate(a, size=(5, 11), mode="nearest-exact"), (IMAGE,)),
    "upsample_linear1d": (lambda a: fn.interpolate(a, size=7, mode="linear"), (X,)),
    "upsample_bilinear2d": (lambda a: fn.interpolate(a, scale_factor=2, mode="bilinear"), (IMAGE,)),
    "upsample_bilinear2d.size": (lambda a: fn.interpolate(a, size=(5, 11), mode="bilinear"), (IMAGE,)),
    "upsample_bilinear2d.scale": (lambda a: fn.interpolate(a, scale_factor=1.3, mode="bilinear"), (IMAGE,)),
    "upsample_bilinear2d.corners": (
        lambda a: fn.interpolate(a, size=(13, 5), mode="bilinear", align_corners=True),
        (IMAGE,),
    ),
    "grid_sampler_2d": (
        lambda a, g: fn.grid_sample(a, g, align_corners=False),
        (IMAGE, values(1, 3, 3, 2, low=-1.0, high=1.0)),
    ),
    "upsample_bicubic2d": (lambda a: fn.interpolate(a, size=(13, 5), mode="bicubic"), (IMAGE,)),
    "upsample_trilinear3d": (lambda a: fn.interpolate(a, size=(3, 5, 6), mode="trilinear"), (values(1, 2, 2, 3, 4),)),
}

HOST: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "embedding": (nn.Embedding(10, 4).half().float(), (torch.tensor([[1, 9, 3]]),)),
    "gather": (lambda a, i: a.gather(2, i), (X, torch.tensor([[[0, 3]] * 3] * 2))),
    "grid_sampler_2d": (
        lambda a, g: fn.grid_sample(a, g, align_corners=False, padding_mode="reflection"),
        (IMAGE, values(1, 3, 3, 2, low=-1.0, high=1.0)),
    ),
    "index": (lambda a, i: a[:, i], (X, torch.tensor([2, 0]))),
    "index_select": (lambda a, i: a.index_select(1, i), (X, torch.tensor([2, 0]))),
    "integers": (lambda i: (i * 3 + 1) // 2 % 5, (torch.arange(7),)),
    "comparison of integers": (lambda i, a: torch.where(i == 1, a, -a), (torch.tensor([0, 1, 2]), values(3))),
    "integer to float": (lambda i: i.float() * 0.5, (torch.arange(7),)),
    "one_hot": (lambda i: fn.one_hot(i, 5).float(), (torch.tensor([0, 4, 2]),)),
    "cummax": (lambda a: a.cummax(1), (X,)),
    "cumprod": (lambda a: a.cumprod(1), (X,)),
    "lgamma": (torch.lgamma, (P,)),
    "erfinv": (torch.erfinv, (UNIT,)),
    "masked_scatter": (lambda a, b: a.masked_scatter(a > 0, b), (X, Y)),
    "max_pool2d_with_indices": (lambda a: fn.max_pool2d(a, 2, return_indices=True), (IMAGE,)),
    "median": (lambda a: a.median(1), (values(2, 3, 5),)),
    "kthvalue": (lambda a: a.kthvalue(2, 2), (X,)),
    "pdist": (fn.pdist, (SQUARE,)),
    "scatter_reduce": (lambda a, b: a.scatter_reduce(2, torch.tensor([[[0, 0]] * 3] * 2), b, "amax"), (X, Y)),
    "searchsorted": (lambda a: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), a), (X,)),
    "embedding_bag": (
        lambda i: fn.embedding_bag(i, torch.arange(20.0).reshape(5, 4), torch.tensor([0, 2]), mode="sum"),
        (torch.tensor([0, 1, 4]),),
    ),
}

KNOWN: dict[str, Callable[..., Any]] = {
    "arange": lambda a: a + torch.arange(4),
    "scalar_tensor": lambda a: a * torch.tensor(0.5),
    "empty": lambda a: a + torch.zeros(4).fill_(0.25),
    "linspace": lambda a: a + torch.linspace(0, 1.5, 4),
    "meshgrid": lambda a: a[0, :, :3] + torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")[0],
    "nonzero of what is known": lambda a: a[:, torch.tensor([True, False, True])],
    "eye": lambda a: a @ torch.eye(4),
    "triangle": lambda a: a[0, :, :3] + torch.full((3, 3), -1.0).triu(1),
    "sizes": lambda a: a.reshape(a.shape[0] * a.shape[1], -1) * a.size(-1),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    function, inputs = ELEMENTWISE[name]
    compare(function, *inputs)


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    function, inputs = MOVES[name]
    graph = compare(function, *inputs)
    listed_rightly(name, graph)
    assert not any(each.op == "host" for each in graph), str(graph)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    function, inputs = PRODUCTS[name]
    graph = compare(function, *inputs)
    listed_rightly(name, graph)
    assert not any(each.op == "host" for each in graph), str(graph)


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics(name: str) -> None:
    function, inputs = STATISTICS[name]
    graph = compare(function, *inputs)
    listed_rightly(name, graph)
    assert not any(each.op == "host" for each in graph), str(graph)


@pytest.mark.parametrize("name", SPACE)
def test_space(name: str) -> None:
    function, inputs = SPACE[name]
    rounded = any(
        word in name for word in ("adaptive_avg", "linear", "cubic")
    )  # shares are stored, so rounded to fp16
    graph = compare(function, *inputs, within=1e-3 if rounded else 1e-4)
    listed_rightly(name, graph)
    assert not any(each.op == "host" for each in graph), str(graph)


@pytest.mark.parametrize("name", HOST)
def test_on_the_host(name: str) -> None:
    function, inputs = HOST[name]
    graph = compare(function, *inputs)
    hosted = [each for each in graph if each.op == "host"]
    assert hosted
    assert all(each.attrs["language"] == "torch" and each.attrs["reason"] for each in hosted)


@pytest.mark.parametrize("name", KNOWN)
def test_known_values_are_folded(name: str) -> None:
    graph = compare(KNOWN[name], X)
    assert not any(each.op == "host" for each in graph)


def _assigned(a: torch.Tensor, i: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a = a.clone()
    a[:, i] = b
    return a


def test_a_write_to_a_computed_place_stays_on_the_engine() -> None:
    """Only marks cross from the host; the tensor that is written to does not."""
    for index in (torch.tensor([2]), torch.tensor([2, 0]), torch.tensor([-1])):
        count = len(index)
        graph = compare(lambda a, b, i, n=count: a.index_copy(1, i % 3, b[:, :n]), X, Y, index)
        graph = compare(lambda a, b, i, n=count: _assigned(a, i, b[:, :n]), X, Y, index)
        crossing = [each for each in graph if each.op == "host"]
        assert crossing
        assert all(each.attrs["kind"] == "aneforge.marks" for each in crossing)


def test_only_the_whole_numbers_of_a_product_go_to_the_host() -> None:
    ids = torch.tensor([[0], [1], [3]])
    graph = compare(lambda a, i: (a * i + a.div(i + 1)).sum(1) > i.sum(), values(3, 4), ids)
    assert [each.attrs["kind"] for each in graph if each.op == "host"].count("aten._to_copy.default") >= 1
    assert {"mul", "real_div", "sum", "greater"} <= {each.op for each in graph}


@pytest.mark.parametrize("bound", [0.3, -0.3, 0.1, 1e-9, 5.0])
def test_a_bound_that_fp16_lacks_divides_as_it_does(bound: float) -> None:
    around = np.arange(-40, 40) + np.float16(bound).view(np.int16).astype(int)
    x = torch.from_numpy(around.astype(np.uint16).view(np.float16)).float().nan_to_num()
    for compares in (torch.gt, torch.ge, torch.lt, torch.le):
        compare(lambda a, f=compares: f(a, bound), x)


@pytest.mark.parametrize("cell", [nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.RNNCell(3, 4)])
def test_cells(cell: nn.Module) -> None:
    for parameter in cell.parameters():
        parameter.data = parameter.data.half().float()
    compare(cell, values(2, 3))


def test_recurrent_layers() -> None:
    x = values(5, 2, 3)
    torch.manual_seed(0)
    for module in (
        nn.LSTM(3, 4),
        nn.LSTM(3, 4, num_layers=2, bidirectional=True),
        nn.LSTM(3, 4, bias=False),
        nn.GRU(3, 4, num_layers=2),
        nn.GRU(3, 4, bidirectional=True),
        nn.RNN(3, 4),
        nn.RNN(3, 4, nonlinearity="relu"),
    ):
        for parameter in module.parameters():
            parameter.data = parameter.data.half().float()
        compare(module, x, within=2e-3)  # two biases are added before they are rounded


def test_coverage_names_every_core_op() -> None:
    listed = {name: (form, reason) for name, form, reason in coverage()}
    core = {
        str(getattr(packet, overload)).split(".")[1]
        for name in dir(aten)
        if hasattr(packet := getattr(aten, name), "overloads")
        for overload in packet.overloads()
        if torch.Tag.core in getattr(packet, overload).tags
    }
    assert core <= set(listed)
    assert {form for form, _ in listed.values()} <= {"native form", "equivalent", "host", "refused"}
    assert all(reason for form, reason in listed.values() if form in ("host", "refused"))
    assert sum(form in ("native form", "equivalent") for form, _ in listed.values()) > 200


def test_how_many_core_ops_are_checked_here() -> None:
    tables = (UNARY, ELEMENTWISE, MOVES, PRODUCTS, STATISTICS, SPACE, HOST, KNOWN)
    assert sum(map(len, tables)) >= 250
    assert math.prod(len(table) for table in tables) > 0
