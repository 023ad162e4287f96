# pyright: basic, reportMissingImports=false
"""One module through every exporter: whatever the file's spelling, the program is the same."""

from __future__ import annotations

import logging
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as fn
from torch_models import settled

import aneforge as af
from aneforge.formats.arguments import graph_of


class Attention(nn.Module):
    """As vision transformers write it: one projection for all three, five axes, an unbind."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, places, width = x.shape
        q, k, v = self.qkv(x).reshape(samples, places, 3, self.heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        y = fn.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(samples, places, width))


class Vision(nn.Module):
    """Patches, two blocks, a mean over places."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.attention = Attention(32, 4)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = x + self.attention(self.norms[0](x))
        return (x + self.mlp(self.norms[1](x))).mean(1)


class Root(nn.Module):
    """A norm by the root mean square, written out as language models do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Decoder(nn.Module):
    """A block of a language model: rotary positions, fewer heads of keys, a causal mask, a gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Root(64), Root(64)
        self.q, self.k, self.v = nn.Linear(64, 64, bias=False), *(nn.Linear(64, 32, bias=False) for _ in range(2))
        self.o = nn.Linear(64, 64, bias=False)
        self.gate, self.up = (nn.Linear(64, 96, bias=False) for _ in range(2))
        self.down = nn.Linear(96, 64, bias=False)
        angles = torch.outer(torch.arange(12.0), 10000 ** (-torch.arange(0, 16, 2) / 16))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat([-second, first], -1) * self.sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, places, width = x.shape
        normed = self.first(x)
        q = self._turned(self.q(normed).view(samples, places, 4, 16).transpose(1, 2))
        k = self._turned(self.k(normed).view(samples, places, 2, 16).transpose(1, 2))
        v = self.v(normed).view(samples, places, 2, 16).transpose(1, 2)
        k, v = (t[:, :, None].expand(samples, 2, 2, places, 16).reshape(samples, 4, places, 16) for t in (k, v))
        y = fn.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(samples, places, width))
        normed = self.second(x)
        return x + self.down(fn.silu(self.gate(normed)) * self.up(normed))


class Mobile(nn.Module):
    """Hard activations and a squeeze."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.depth = nn.Conv2d(8, 24, 1), nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.norm = nn.BatchNorm2d(24)
        self.squeeze, self.excite = nn.Conv2d(24, 8, 1), nn.Conv2d(8, 24, 1)
        self.project = nn.Conv2d(24, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = fn.hardswish(self.norm(self.depth(fn.hardswish(self.expand(x)))))
        gate = fn.hardsigmoid(self.excite(fn.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.project(y * gate)


class Diffusion(nn.Module):
    """Group norms and silu, an upsampling, a shuffle of pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(4, 16) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
        self.out = nn.Conv2d(16, 12, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = x + conv(fn.silu(norm(x)))
        return fn.pixel_shuffle(self.out(fn.interpolate(x, scale_factor=2, mode="nearest")), 2)


class Windows(nn.Module):
    """Attention within windows, cut out by six axes, with a bias for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.bias = nn.Parameter(torch.randn(1, 4, 16, 16) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, high, wide, features = x.shape
        cut = self.norm(x).view(samples, high // 4, 4, wide // 4, 4, features).permute(0, 1, 3, 2, 4, 5)
        rows = cut.reshape(-1, 16, features)
        q, k, v = self.qkv(rows).reshape(-1, 16, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (1 / math.sqrt(8))) @ k.transpose(-2, -1) + self.bias
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, features)
        y = self.proj(y).view(samples, high // 4, wide // 4, 4, 4, features).permute(0, 1, 3, 2, 4, 5)
        return x + y.reshape(samples, high, wide, features)


MODULES = {
    "vision": (Vision, (1, 3, 32, 32)),
    "decoder": (Decoder, (1, 12, 64)),
    "mobile": (Mobile, (1, 8, 16, 16)),
    "diffusion": (Diffusion, (1, 16, 8, 8)),
    "windows": (Windows, (1, 8, 8, 32)),
}


def exported(folder: Path, module: nn.Module, x: torch.Tensor) -> dict[str, Path]:
    """The module as a file of each exporter that is installed."""
    files = {name: folder / file for name, file in (("pt2", "m.pt2"), ("script", "s.onnx"), ("coreml", "m.mlpackage"))}
    program = torch.export.export(module, (x,), strict=False)
    torch.export.save(program, files["pt2"])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        torch.onnx.export(module, (x,), str(files["script"]), dynamo=False, opset_version=17)
        import coremltools as ct

        converted = ct.convert(
            program.run_decompositions({}),
            minimum_deployment_target=ct.target.iOS18,
            compute_precision=ct.precision.FLOAT32,
        )
        converted.save(str(files["coreml"]))
        files["dynamo"] = folder / "d.onnx"
        torch.onnx.export(module, (x,), str(files["dynamo"]), dynamo=True, external_data=False, verbose=False)
        logging.disable(logging.NOTSET)
    return files


def program_of(path: Path, chip: str) -> tuple[list[str], np.ndarray]:
    """The layers of a program in order, and what it gives."""
    graph = graph_of(af.load(path))
    model = af.compile(graph, target=chip)
    layers = [op.name for op in model.program.module.ops if op.name != "anec.const_in"]
    data = np.random.default_rng(3).standard_normal(graph.inputs[0].shape).astype(np.float16).astype(np.float32)
    return layers, np.asarray(model(data), np.float32)


@pytest.mark.parametrize("name", MODULES)
def test_every_exporter_gives_one_program(tmp_path, name):
    kind, shape = MODULES[name]
    torch.manual_seed(7)
    module = settled(kind())
    x = torch.randn(shape)
    files = exported(tmp_path, module, x)
    for chip in ("m1", "m5"):
        found = {format_name: program_of(path, chip) for format_name, path in files.items()}
        wanted = found["pt2"]
        for format_name, (layers, numbers) in found.items():
            assert layers == wanted[0], f"{format_name} on {chip}"
            error = np.linalg.norm(numbers - wanted[1]) / np.linalg.norm(wanted[1])
            assert error < 2e-3, f"{format_name} on {chip}"
