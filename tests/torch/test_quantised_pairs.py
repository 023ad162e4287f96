# pyright: reportMissingImports=false
"""What PyTorch's pt2e flow leaves in an exported program: codes on both sides of a convolution and a dense layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed
from test_files import Calls, exported, saved
from torch.nn import functional as fn

import aneforge as af
from aneforge.cost.program import work_of_program

quantised = torch.ops.quantized_decomposed


def _pair(x: torch.Tensor, scale: float, zero: int, low: int, high: int, kind: torch.dtype) -> torch.Tensor:
    codes = quantised.quantize_per_tensor(x, scale, zero, low, high, kind)
    return quantised.dequantize_per_tensor(codes, scale, zero, low, high, kind)


@pytest.mark.parametrize(
    ("low", "high", "kind"), [(-128, 127, torch.int8), (0, 255, torch.uint8), (0, 127, torch.uint8)]
)
def test_pairs_of_an_exported_program_reach_the_integer_sums(
    low: int, high: int, kind: torch.dtype, tmp_path: Path
) -> None:
    draw = torch.Generator().manual_seed(0)
    held = {
        "kernel": torch.randint(-127, 128, (32, 16, 3, 3), dtype=torch.int8, generator=draw),
        "kernel_scale": torch.rand(32, generator=draw) * 0.003 + 0.001,
        "matrix": torch.randint(-127, 128, (24, 32), dtype=torch.int8, generator=draw),
        "matrix_scale": torch.rand(24, generator=draw) * 0.003 + 0.001,
    }
    middle = 0 if low < 0 else (high + 1) // 2

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        def weight(name: str) -> torch.Tensor:
            codes, scale = getattr(m, name), getattr(m, f"{name}_scale")
            zeros = torch.zeros(len(scale), dtype=torch.int64)
            return quantised.dequantize_per_channel(codes, scale, zeros, 0, -127, 127, torch.int8)

        h = fn.relu(fn.conv2d(_pair(x, 0.0625, middle, low, high, kind), weight("kernel"), padding=1))
        return fn.linear(_pair(h.mean((2, 3)), 0.03125, low, low, high, kind), weight("matrix"))

    # Between two codes but never half way: PyTorch rounds a half to even, the engine away from zero (N77).
    x = ((torch.randint(-40, 40, (1, 16, 8, 8), generator=draw) + 0.3) * 0.0625).half().float()
    module = Calls(function, **held)
    graph = af.load(saved(exported(module, x), tmp_path / "net.pt2"))
    for chip in ("m4", "m5", "m6"):
        program = af.compile(graph, target=chip, _check_precision=False).program
        kernels = [work.integers for work in work_of_program(program) if work.kind in ("conv", "linear")]
        assert kernels == [True, True], chip
        (found,) = af.run(graph, chip, [x.numpy()]).only.outputs.values()
        one_code = 0.03125 * 127 * 0.004  # where fp16 in front of the second quantiser gives a neighbouring code
        np.testing.assert_allclose(found, module(x).detach().numpy(), atol=one_code, rtol=1e-3)
