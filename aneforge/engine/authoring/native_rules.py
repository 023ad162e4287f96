"""Native layers: each becomes an op of its own and cuts the program."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from aneforge.engine.authoring.build import AuthoringError, Rule, Unit
from aneforge.engine.authoring.ordinary_rules import ORDINARY_RULES, factors, pads, sizes
from aneforge.errors import PrecisionWarning
from aneforge.graph import builders as af
from aneforge.graph import layer_forms as layers
from aneforge.graph.tensor import Tensor


def attention(unit: Unit, heads_first: bool = False) -> Tensor:
    """Fused attention. In a netplist channels hold the sequence and height the heads; ``af.bridge`` has the heads
    first."""
    query, key, value, scale, *mask = unit.bottoms
    if scale.weight is None or scale.size != 1:
        raise AuthoringError("the scale must be a constant of one number")
    factor = float(scale.weight.array.reshape(-1)[0])
    plane = _mask(mask[0], query, key, 2 if heads_first else 1) if mask else None
    subtracts = bool(unit.params["SubtractMax"])
    if not subtracts:
        warnings.warn(
            "SDPA: SubtractMax is false, which is the descriptor's default: a score above 11.09 makes the exponential "
            "infinite (N28, N29). Write SubtractMax=True.",
            PrecisionWarning,
            stacklevel=4,
        )
    return layers.attention(query, key, value, factor, plane, subtract_max=subtracts, heads_first=heads_first)


def _mask(mask: Tensor, query: Tensor, key: Tensor, sequence: int) -> Tensor:
    """One plane, which is used for every head."""
    if len(query.shape) != 4 or len(key.shape) != 4:
        raise AuthoringError(f"Q {list(query.shape)} and K {list(key.shape)} must have rank 4")
    rows, columns = query.shape[sequence], key.shape[sequence]
    if mask.size != rows * columns:
        raise AuthoringError(
            f"the mask {list(mask.shape)} has {mask.size} numbers; expected one plane of {rows} x {columns}, "
            "which is used for every head"
        )
    return mask.reshape(1, 1, rows, columns)


def _scaled(unit: Unit) -> Tensor:
    a, b = unit.bottoms
    return af.scaled_elementwise(a, b, unit.params["Type"], unit.params["Scale"])


def _topk(unit: Unit) -> Tensor:
    return layers.topk_vectors(
        unit.bottom,
        unit.params["K"],
        unit.axis(unit.params["SortDimension"]),
        unit.axis(unit.params["VectorDimension"]),
        unit.params["SortIndices"],
        largest=unit.params["Type"] == "Max",
        indices=bool(unit.params["Indices"]),
    )


def _sort(unit: Unit) -> Tensor:
    return layers.sort_vectors(
        unit.bottom,
        unit.axis(unit.params["SortDimension"]),
        unit.axis(unit.params["VectorDimension"]),
        unit.params["SortIndices"],
        descending=unit.params["Direction"] == "Descending",
        indices=bool(unit.params["Indices"]),
    )


def _arg_min_max(unit: Unit) -> Tensor:
    mode = unit.params["Mode"]
    if mode.startswith("Channel"):
        return layers.arg_min_max(unit.image, mode)
    if "KernelHeight" not in unit.params or "KernelWidth" not in unit.params:
        raise AuthoringError(f"{mode} needs KernelHeight and KernelWidth; add them")
    window = unit.params["KernelHeight"], unit.params["KernelWidth"]
    step = sizes(unit, "Step", 2) if "Step" in unit.params else (1, 1)
    return layers.arg_min_max(unit.image, mode, window, step, pads(unit))


def _global_arg(unit: Unit) -> Tensor:
    return layers.global_arg(unit.image, unit.params["Type"] == "Max", unit.axis(unit.params["Dimension"]))


def _lrn(unit: Unit) -> Tensor:
    if unit.params["KernelWidth"] != 1 or unit.params["KernelHeight"] != 1:
        raise AuthoringError("KernelWidth and KernelHeight must be 1; the window is along the channels")
    beta, k = float(unit.param("Beta", 0.75)), float(unit.param("K", 1.0))
    return af.lrn(unit.image, unit.params["Alpha"], beta, k, unit.params["KernelChannel"])


def _minmax(unit: Unit) -> Tensor:
    return af.minmax_norm(unit.image, str(unit.params["Dimension"]), unit.params["Epsilon"])


def _view(unit: Unit) -> Tensor:
    offset, size, step = unit.params["Offset"], unit.params["Size"], unit.param("Step", 1)
    return af.input_view(unit.bottom, offset, size, step, unit.axis(unit.params["Dimension"]))


def _dynamic_slice(unit: Unit) -> Tensor:
    """A start for each axis, in the order of DynamicSliceAxisOrder."""
    x, start = unit.bottoms
    order = unit.params["DynamicSliceAxisOrder"]
    extents = {entry["Coordinate"]: entry["SliceSize"] for entry in unit.params["DynamicSliceInfo"]}
    if set(order) != set(extents) or len(order) != len(extents):
        raise AuthoringError("DynamicSliceAxisOrder and DynamicSliceInfo must name the same axes, each once")
    if "PaddingInfo" in unit.params or unit.param("BackgroundValue", 0) != 0:
        raise AuthoringError("PaddingInfo and BackgroundValue must be left out; what they do is not published")
    lengths, axes = [extents[name] for name in order], [unit.axis(name) for name in order]
    return layers.slice_from(x, start, lengths, axes)


def _gather(unit: Unit) -> Tensor:
    """Stored indices: their channels are the axes, their height the places (U89)."""
    x, index = unit.bottom, unit.bottoms[1]
    if index.weight is None:
        raise AuthoringError("the indices must be a constant; on the authored path they are UInt16 constants")
    numbers = np.asarray(index.weight.array, np.float64)
    if (numbers != np.floor(numbers)).any():
        raise AuthoringError("the indices must be integers")
    axes = [unit.axis(name) for name in unit.params["GatherNDAxes"]]
    if not axes:
        raise AuthoringError("GatherNDAxes is empty; name one axis or more")
    if len(axes) == 1:
        return af.gather(x, numbers.astype(int).reshape(-1).tolist(), axes[0])
    if numbers.ndim != 4 or numbers.shape[0] != 1 or numbers.shape[1] != len(axes) or numbers.shape[3] != 1:
        raise AuthoringError(
            f"the indices are {list(numbers.shape)}; expected [1, {len(axes)}, places, 1], a channel for each axis"
        )
    return layers.gather_places(x, numbers[0, :, :, 0].astype(int).T.tolist(), axes)


def _two_factors(form: Callable[[Tensor, tuple[int, int]], Tensor]) -> Rule:
    return lambda unit: form(unit.image, factors(unit))


def _batches(form: Callable[[Tensor, int, int], Tensor]) -> Rule:
    return lambda unit: form(unit.image, *factors(unit))


def _flatten(unit: Unit) -> Tensor:
    """A line for each image, along the width."""
    x = unit.image
    return af.flatten(x).reshape(x.shape[0], 1, 1, x.size // x.shape[0])


def _correlation(unit: Unit) -> Tensor:
    x, template = unit.images
    stated = unit.params["TemplateHeight"], unit.params["TemplateWidth"]
    if template.shape[2:] != stated:
        raise AuthoringError(f"TemplateHeight and TemplateWidth are {stated}; the template is {template.shape[2:]}")
    return af.cross_correlation(x, template, pads(unit), unit.param("NumGroups", 1))


def _cost_volume(unit: Unit) -> Tensor:
    if unit.param("DisparityDirection", 0) != 0:
        raise AuthoringError(
            f"DisparityDirection is {unit.params['DisparityDirection']}; it must be 0, the only one that is published"
        )
    for key in ("ScaleFactorX", "ScaleFactorY"):
        if unit.param(key, 1.0) != 1.0:
            raise AuthoringError(f"{key} is {unit.params[key]}; how the layer scales is not published, so use 1.0")
    if "DisparityRange" not in unit.params:
        raise AuthoringError("DisparityRange is missing; add it")
    aux, ref = unit.images
    return af.cost_volume(aux, ref, unit.params["DisparityRange"])


def _sampled_points(unit: Unit) -> Tensor:
    if unit.param("DistanceMetric", "L2") != "L2":
        raise AuthoringError("DistanceMetric L1 is accepted and ignored: distances are always Euclidean; use L2")
    return af.fps(unit.image, unit.params["CentroidCount"])


def _radius(unit: Unit) -> Tensor:
    centroids, points = unit.images
    return af.radius_search(points, centroids, unit.params["Radius"])


def _rasterised(unit: Unit) -> Tensor:
    shape = tuple(unit.param(key, 1) for key in ("KernelHeight", "KernelWidth", "NumGroups"))
    if shape != (1, 1, 1) or unit.extent("OutputChannels", unit.image.shape[1]) != unit.image.shape[1]:
        raise AuthoringError(
            "KernelHeight, KernelWidth and NumGroups must be 1; only the configuration that changes nothing compiles"
        )
    return layers.kernel_rasterizer(unit.image)


def _crop_resize(unit: Unit) -> Tensor:
    x, boxes = unit.bottoms
    if boxes.size % 2:
        raise AuthoringError(f"the boxes have {boxes.size} numbers; expected a top and a left for each")
    corners = boxes.reshape(boxes.size // 2, 2)
    return layers.native_crop_resize(x, corners, sizes(unit, "crop_dims", 2), sizes(unit, "output_dims", 2))


def _resampled(unit: Unit) -> Tensor:
    """The nearest element unless stated otherwise: linear sampling fails code generation when it is authored."""
    image, grid = unit.images
    return layers.native_resample(image, grid, unit.param("SamplingMethod", "NearestNeighbor"))


RULES: dict[str, Rule] = {
    **ORDINARY_RULES,
    "ArgMinMax": _arg_min_max,
    "BatchToSpace": _batches(af.batch_to_space),
    "ChannelToSpace": _two_factors(af.channel_to_space),
    "CostVolume": _cost_volume,
    "CropResize": _crop_resize,
    "CrossCorrelation": _correlation,
    "CrossProduct": lambda unit: af.cross_product(*unit.images),
    "DynamicSlice": _dynamic_slice,
    "Flatten": _flatten,
    "FurthestPointSampling": _sampled_points,
    "Gather": _gather,
    "GlobalArgMinMax": _global_arg,
    "InputView": _view,
    "KernelRasterizer": _rasterised,
    "LocalResponseNormalization": _lrn,
    "MinMaxNormalization": _minmax,
    "RadiusSearch": _radius,
    "Resample": _resampled,
    "RingBufferWriter": lambda unit: af.ring_write(unit.bottom, unit.bottoms[1], unit.params["offset"]),
    "SDPA": attention,
    "ScaledElementWise": _scaled,
    "Sort": _sort,
    "SpaceToBatch": _batches(af.space_to_batch),
    "SpaceToChannel": _two_factors(af.space_to_channel),
    "TopK": _topk,
    "Unflatten": lambda unit: layers.native_unflatten(unit.image, *sizes(unit, "destination_size", 3)),
}
"""What each type of layer becomes in the graph, ordinary or native."""

UNREAD: dict[str, str] = {
    "MatrixDecomposition": (
        "the compiler takes the layer as a carrier and never calls the factorisation, so there are no numbers to "
        "compute; use the host"
    ),
    "NMS": "non-maximum suppression does not run on the engine; its backends are the CPU and the GPU, so use the host",
    "NeuronCustom": (
        "a raw custom table (kZinIrNonLinearCustomLUT) cannot be authored: the parser needs a saturation set and a "
        "version-specific set together and then rejects their coexistence. Use af.pwl(x, knots, values), which builds "
        "any table from ordinary layers"
    ),
    "Shape": "the shape is known when the graph is built; use a constant",
}
"""Why some layers cannot be authored, and what to do."""
