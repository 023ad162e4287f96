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
from aneforge.frontends.torch.adapter import from_torch

sys.path.insert(0, str(Path(__file__).parent.parent))
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
}


@pytest.mark.parametrize("name", ASSETS)
def test_core_ai_gives_the_same_graph(tmp_path, name):
    spelled, wanted = ASSETS[name]
    kit.build(tmp_path, spelled, {"x": (X, "float32")})
    assert_same(af.load(tmp_path / "model.aimodel"), af.Graph.of(wanted(af.input(X))), [drawn()])
