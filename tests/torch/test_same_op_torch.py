# pyright: reportMissingImports=false
"""The rows of ``tests/test_same_op.py`` that PyTorch and Core AI have: the same graph and the same bits."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coreai_kit as kit
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as fn

import aneforge as af
from aneforge.formats.pytorch.adapter import from_torch

sys.path.insert(0, str(Path(__file__).parent.parent))
import same_op_rows as rows
from same_op_kit import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")
X = (1, 8, 4, 4)


def s(value: float) -> float:
    """As files hold it."""
    return float(np.float32(value))


class Calls(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def drawn(positive: bool = False) -> np.ndarray:
    made = np.random.default_rng(7).uniform(0.25 if positive else -4.0, 4.0, X)
    return made.astype(np.float16).astype(np.float32)


ROWS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gelu": (fn.gelu, lambda x: x.gelu()),
    "gelu by tanh": (lambda x: fn.gelu(x, approximate="tanh"), lambda x: x.gelu()),
    "silu": (fn.silu, lambda x: x.silu()),
    "relu6": (fn.relu6, lambda x: x.relu6()),
    "relu by clamp": (lambda x: x.clamp(min=0.0), lambda x: x.relu()),
    "clamp": (lambda x: x.clamp(-1.0, 1.5), lambda x: x.clip(-1.0, 1.5)),
    "clamp above": (lambda x: x.clamp(max=1.5), lambda x: af.minimum(x, 1.5)),
    "elu": (lambda x: fn.elu(x, 0.7), lambda x: x.elu(s(0.7))),
    "leaky relu": (lambda x: fn.leaky_relu(x, 0.1), lambda x: x.leaky_relu(s(0.1))),
    "product with a number": (lambda x: x * 1.702, lambda x: x.linear_activation(s(1.702))),
    "quotient by a number": (lambda x: x / 3, lambda x: x.linear_activation(s(1 / 3))),
    "product beyond fp16": (lambda x: x * -1e9, lambda x: (x * 32768.0).linear_activation(s(-1e9 / 32768))),
    "mask of -1e9": (lambda x: x + -1e9, lambda x: x + -math.inf),
    "number less x": (lambda x: 1.0 - x, lambda x: 1.0 - x),
    "power 2": (lambda x: x**2, lambda x: x.square()),
    "power 3": (lambda x: x**3, lambda x: x * x.square()),
    "softmax": (lambda x: x.softmax(1), lambda x: x.softmax(1)),
    "running sum": (lambda x: x.cumsum(2), lambda x: x.cumsum(2)),
}


@pytest.mark.parametrize("name", ROWS)
def test_pytorch_gives_the_same_graph(name):
    spelled, wanted = ROWS[name]
    x = drawn()
    graph = from_torch(Calls(spelled).eval(), (torch.from_numpy(x),))
    assert_same(graph, af.Graph.of(wanted(af.input(X))), [x])


ASSETS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gelu": (lambda x: kit.A.gelu(x, approximate="none"), lambda x: x.gelu()),
    "gelu by tanh": (lambda x: kit.A.gelu(x, approximate="tanh"), lambda x: x.gelu()),
    "gelu by sigmoid": (
        lambda x: kit.A.gelu(x, approximate="sigmoid"),
        lambda x: x * x.linear_activation(s(1.702)).sigmoid(),
    ),
    "silu": (kit.A.silu, lambda x: x.silu()),
    "relu": (kit.A.relu, lambda x: x.relu()),
    "tanh": (kit.A.tanh, lambda x: x.tanh()),
    "softmax": (lambda x: kit.A.softmax(x, np.int32(1)), lambda x: x.softmax(1)),
    "transpose": (lambda x: kit.A.transpose(x, kit.u32(0, 2, 3, 1)), lambda x: x.transpose([0, 2, 3, 1])),
    "mean": (lambda x: kit.A.reduce_mean(x, kit.s32(2, 3)), lambda x: x.mean((2, 3))),
    "product with a number": (
        lambda x: kit.A.broadcasting_mul(x, kit.f32([1.702])),
        lambda x: x.linear_activation(s(1.702)),
    ),
    "power 3": (lambda x: kit.A.broadcasting_pow(x, kit.f32([3.0])), lambda x: x * x.square()),
    "slice in steps": (
        lambda x: kit.A.slice_(x, kit.s32(0, 0, 0, 0), kit.s32(1, 8, 4, 4), kit.s32(1, 1, 2, 1)),
        lambda x: af.gather(x, [0, 2], axis=2),
    ),
}


@pytest.mark.parametrize("name", ASSETS)
def test_core_ai_gives_the_same_graph(tmp_path, name):
    spelled, wanted = ASSETS[name]
    kit.build(tmp_path, spelled, {"x": (X, "float32")})
    assert_same(af.load(tmp_path / "model.aimodel"), af.Graph.of(wanted(af.input(X))), [drawn()])


def t(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)


def _lstm(x: torch.Tensor) -> torch.Tensor:
    """ONNX stores the gates as input, output, forget, cell; PyTorch as input, forget, cell, output."""
    order = np.r_[0:3, 6:9, 9:12, 3:6]
    w, r, b = rows.W4[0][order], rows.R4[0][order], rows.B8[0].reshape(2, 12)[:, order]
    start = torch.zeros(1, 1, 3)
    weights = [t(w), t(r), t(b[0].copy()), t(b[1].copy())]
    whole = torch.ops.aten.lstm.input(x, [start, start], weights, True, 1, 0.0, False, False, False)[0]
    return whole[:, None]


def _rnn(x: torch.Tensor) -> torch.Tensor:
    w, r, b = rows.draw(1, 3, 6)[0], rows.draw(1, 3, 3)[0], rows.draw(1, 6)[0]
    weights = [t(w), t(r), t(b[:3].copy()), t(b[3:].copy())]
    whole = torch.ops.aten.rnn_tanh.input(x, torch.zeros(1, 1, 3), weights, True, 1, 0.0, False, False, False)[0]
    return whole[:, None]


LAYERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "convolution": lambda x: fn.conv2d(x, t(rows.KERNEL), t(rows.BIAS6), padding=1),
    "convolution along a line": lambda x: fn.conv1d(x, t(rows.draw(4, 8, 3))),
    "transposed convolution": lambda x: fn.conv_transpose2d(x, t(rows.UP), t(rows.BIAS5), stride=2),
    "average pool with zeros": lambda x: fn.avg_pool2d(x, 3, stride=1, padding=1),
    "bilinear, half pixels": lambda x: fn.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear, aligned corners": lambda x: fn.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
    "nearest": lambda x: fn.interpolate(x, scale_factor=(3, 2), mode="nearest"),
    "pixel shuffle": lambda x: fn.pixel_shuffle(x, 2),
    "joined": lambda x: torch.cat([x, x.relu()], 1),
    "expanded": lambda x: x.mean((2, 3), keepdim=True).expand(1, 8, 4, 4),
    "reshaped": lambda x: x.reshape(2, -1, 16),
    "squeezed": lambda x: x.squeeze(0),
    "unsqueezed": lambda x: x.unsqueeze(1),
    "batch norm": lambda x: fn.batch_norm(x, t(rows.MEAN), t(rows.SPREAD), t(rows.GAIN), t(rows.SHIFT), eps=1e-3),
    "group norm": lambda x: fn.group_norm(x, 4, t(rows.GAIN), t(rows.SHIFT), eps=1e-3),
    "rms norm": lambda x: fn.rms_norm(x, (16,), t(rows.draw(16)), eps=1e-3),
    "log softmax": lambda x: x.log_softmax(1),
    "gemm": lambda x: fn.linear(x, t(rows.WEIGHT), t(rows.LINE)),
    "einsum": lambda x: torch.einsum("bi,oi->bo", x, t(rows.WEIGHT)),
    "einsum without a result": lambda x: torch.einsum("ij->", x).reshape(1),
    "and": lambda x: ((x > 0) & (x < 1)).float(),
    "or": lambda x: ((x > 0) | (x < 1)).float(),
    "xor": lambda x: ((x > 0) ^ (x < 1)).float(),
    "where": lambda x: torch.where(x > 0, x, 0.25),
    "fmod": lambda x: torch.fmod(x, 1.5),
    "celu": lambda x: fn.celu(x, 0.7),
    "selu": fn.selu,
    "mish": fn.mish,
    "hard swish": fn.hardswish,
    "lower triangle": lambda x: x.tril(),
    "attention": lambda x: fn.scaled_dot_product_attention(x, x, x),
    "the two largest": lambda x: x.topk(2, -1)[0],
    "recurrence": _rnn,
    "lstm": _lstm,
}


@pytest.mark.parametrize("name", LAYERS)
def test_pytorch_and_onnx_give_one_graph(tmp_path, name):
    layer = rows.LAYERS[name]
    x = layer.feeds()[0]
    graph = from_torch(Calls(LAYERS[name]).eval(), (torch.from_numpy(x),))
    assert_same(graph, rows.onnx_graph(tmp_path, layer), [x], layer.chips, layer.bits_only)


def test_every_layer_without_mil_is_compared_here():
    assert {name for name, layer in rows.LAYERS.items() if layer.mil is None} <= set(LAYERS)
