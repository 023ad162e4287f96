# pyright: reportMissingImports=false
"""One architecture written to files by every exporter: ``python tests/models/exporters.py OUT NAME...``.

Each architecture gets a folder with ``example.npz`` (the inputs, the outputs in float32, and in half precision where
PyTorch can run it), and a file of each exporter: ``exported.pt2``, ``script.onnx``, ``dynamo.onnx`` and
``coreml.mlpackage``.
An exporter that fails leaves ``EXPORTER.failed`` with its message.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import logging
import math
import shutil
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

FORMATS = {
    "pt2": "exported.pt2",
    "script": "script.onnx",
    "dynamo": "dynamo.onnx",
    "coreml": "coreml.mlpackage",
}

LEAST_SPREAD = 1e-6
"""Parameters that vary less are placeholders for trained ones: zeros, and the 1e-10 of Segment Anything."""


def declare_vision_ops() -> None:
    """torchvision registers shapes for ops that only its compiled part defines; without that part, define them."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    boxes = "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width"
    for declared in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        f"roi_align{boxes}, int sampling_ratio, bool aligned) -> Tensor",
        f"qroi_align{boxes}, int sampling_ratio, bool aligned) -> Tensor",
        f"ps_roi_align{boxes}, int sampling_ratio) -> (Tensor, Tensor)",
        f"roi_pool{boxes}) -> (Tensor, Tensor)",
        f"ps_roi_pool{boxes}) -> (Tensor, Tensor)",
        "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int stride_h, "
        "int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups, int offset_groups, "
        "bool use_mask) -> Tensor",
        "_roi_align_backward(Tensor grad) -> Tensor",
        "_ps_roi_align_backward(Tensor grad) -> Tensor",
        "_roi_pool_backward(Tensor grad) -> Tensor",
        "_ps_roi_pool_backward(Tensor grad) -> Tensor",
        "_deform_conv2d_backward(Tensor grad) -> Tensor",
    ):
        with contextlib.suppress(RuntimeError):
            library.define(declared)
    globals()["_kept"] = library


def settle(module: nn.Module) -> nn.Module:
    """Random weights at which activations neither vanish nor explode, and that fp16 holds exactly."""
    drawn = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for norm in module.modules():
            mean, variance = getattr(norm, "running_mean", None), getattr(norm, "running_var", None)
            if isinstance(mean, torch.Tensor) and isinstance(variance, torch.Tensor):
                mean.copy_(torch.randn(mean.shape, generator=drawn) * 0.1)
                variance.copy_(torch.rand(variance.shape, generator=drawn) + 0.5)
        for parameter in module.parameters():
            if parameter.ndim > 1 and float(parameter.std()) < LEAST_SPREAD:
                parameter.copy_(torch.randn(parameter.shape, generator=drawn) / math.sqrt(parameter[0].numel()))
    return module.half().float().eval()


def normalise(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> nn.Module:
    """Batch norms with the statistics of this input, for networks whose drawn weights explode in half precision."""
    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean of what was seen, which is one input
        norm.train()
    with torch.no_grad():
        module(*inputs)
    return module.half().float().eval()


def _flat(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _in_half(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor] | None:
    """The outputs in half precision: what rounding alone costs this network. A copy is run: some networks keep what
    they computed for the next call."""
    try:
        with torch.no_grad():
            halved = tuple(x.half() if x.is_floating_point() else x for x in inputs)
            return [part.float() for part in _flat(copy.deepcopy(module).half()(*halved))]
    except (RuntimeError, TypeError, ValueError):
        return None


def write_all(name: str, folder: Path, wanted: tuple[str, ...] = tuple(FORMATS)) -> None:
    """Every file of one architecture; what is there stays."""
    declare_vision_ops()
    import catalogue

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    module, inputs = catalogue.ALL[name].build()
    module = settle(module)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    inputs = tuple(x.half().float() if x.is_floating_point() else x for x in inputs)
    halves = _in_half(module, inputs)
    if halves and not all(part.isfinite().all() for part in halves):
        halves = _in_half(normalise(module, inputs), inputs)
    with torch.no_grad():  # a copy, where a call changes the module
        outputs = _flat((copy.deepcopy(module) if catalogue.ALL[name].states else module)(*inputs))
    arrays = {f"input{number}": x.numpy() for number, x in enumerate(inputs)}
    arrays |= {f"output{number}": x.numpy() for number, x in enumerate(outputs)}
    arrays |= {f"half{number}": x.numpy() for number, x in enumerate(halves or ())}
    np.savez(folder / "example.npz", allow_pickle=False, **arrays)
    for kind in wanted:
        path = folder / FORMATS[kind]
        if path.exists():
            continue
        try:
            with torch.no_grad():
                _EXPORT[kind](module, inputs, path)
        except Exception as error:  # an exporter may raise anything
            print(f"{name} {kind}: {str(error).strip().splitlines()[-1][:150] if str(error).strip() else type(error)}")
            (folder / f"{kind}.failed").write_text(traceback.format_exc())
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _pt2(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    torch.export.save(torch.export.export(module, inputs, strict=False), path)


def _script(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    with torch.no_grad():
        torch.onnx.export(module, inputs, str(path), dynamo=False, opset_version=17)


def _dynamo(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    torch.onnx.export(module, inputs, str(path), dynamo=True, external_data=False, verbose=False)


def changed_buffers(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[str]:
    """The buffers that a call changes: the states of the model."""
    before, called = dict(module.named_buffers()), copy.deepcopy(module)
    called(*inputs)
    return [name for name, now in called.named_buffers() if not torch.equal(now, before[name])]


def _coreml(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    import coremltools as ct

    types = [
        ct.TensorType(name=f"input{number}", shape=x.shape, dtype=np.float32 if x.is_floating_point() else np.int32)
        for number, x in enumerate(inputs)
    ]
    states = [
        ct.StateType(
            wrapped_type=ct.TensorType(shape=tuple(module.get_buffer(name).shape), dtype=np.float16), name=name
        )
        for name in changed_buffers(module, inputs)
    ]
    traced = torch.jit.trace(copy.deepcopy(module), inputs, strict=False)
    converted = ct.convert(
        traced,
        inputs=types,
        states=states or None,
        minimum_deployment_target=ct.target.iOS18,
        compute_precision=ct.precision.FLOAT16,
    )
    assert converted is not None
    converted.save(str(path))  # pyright: ignore[reportAttributeAccessIssue]


_EXPORT = {"pt2": _pt2, "script": _script, "dynamo": _dynamo, "coreml": _coreml}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    yield


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Write architectures to files by every exporter.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--formats", default=",".join(FORMATS))
    chosen = parser.parse_args(arguments)
    with quiet():
        for name in chosen.names:
            write_all(name, chosen.out / name, tuple(chosen.formats.split(",")))


if __name__ == "__main__":
    main(sys.argv[1:])
