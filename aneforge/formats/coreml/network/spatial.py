"""Layers over channels, height and width: convolutions, pools, pads, resizes and norms, as common ops on planes."""

from __future__ import annotations

import math
from typing import Any

from aneforge.errors import LoadError
from aneforge.formats.coreml.network.values import Blob, NetworkLayer, numbers_of, of_planes, weight_of
from aneforge.formats.importer.calls import called
from aneforge.formats.ops import OPS
from aneforge.formats.values import Value, as_tensor, shaped


def on_planes(layer: NetworkLayer, kind: str, **arguments: Any) -> Blob:
    """A common op on [n, channels, height, width]; the first axes of the input stay."""
    return of_planes(called(OPS[kind], {"x": layer.x.planes(), **arguments}, None), layer.x.shape)


def on_all_axes(layer: NetworkLayer, kind: str, **arguments: Any) -> Blob:
    """A common op on a value with all axes that it has in the network."""
    return Blob.of(called(OPS[kind], {"x": layer.x.full(), **arguments}, None))


def _borders(amounts: Any) -> list[int]:
    """The amounts before and after height and width; zero where the file states none."""
    borders = [(int(border.startEdgeSize), int(border.endEdgeSize)) for border in amounts.borderAmounts]
    if len(borders) not in (0, 2):
        raise LoadError(f"borders are given for {len(borders)} axes; expected 2")
    return [amount for pair in borders or [(0, 0), (0, 0)] for amount in pair]


def _as_pair(values: Any, default: int) -> list[int]:
    sizes = [int(size) for size in values] or [default, default]
    if len(sizes) != 2 or min(sizes) < 1:
        raise LoadError(f"{sizes} does not fit height and width; expected two numbers of 1 or more")
    return sizes


def _padding_of(layer: NetworkLayer, kind: str | None) -> dict[str, Any]:
    if kind == "same":
        return {"pad_type": "same_lower" if layer.same.asymmetryMode == 1 else "same"}
    return {"pad_type": "custom", "pad": _borders(layer.valid.paddingAmounts)}


def _convolution(layer: NetworkLayer) -> Blob:
    """The kernel is stored, or the second input."""
    size = _as_pair(layer.kernelSize, 3)
    groups, out, inner = max(1, int(layer.nGroups)), int(layer.outputChannels), int(layer.kernelChannels)
    lead = (inner, out // groups) if layer.isDeconvolution else (out, inner)
    computed = [blob.planes() if len(blob.shape) > 3 else blob.full() for blob in layer.inputs[1:]]
    weight: Value = computed[0] if computed else weight_of(layer.weights, (*lead, *size), "the kernel")
    bias: Value | None = numbers_of(layer.bias, (out,), "the bias") if layer.hasBias and not computed else None
    settings = {
        "weight": weight,
        "bias": computed[1].reshape(out) if len(computed) > 1 else bias,
        "strides": _as_pair(layer.stride, 1),
        "dilations": _as_pair(layer.dilationFactor, 1),
        "groups": groups,
        **_padding_of(layer, layer.params.WhichOneof("ConvolutionPaddingType")),
    }
    if not layer.isDeconvolution:
        return on_planes(layer, "conv", **settings)
    if layer.outputShape:
        settings["output_shape"] = [int(extent) for extent in layer.outputShape]
        settings["pad_type"] = "same" if settings["pad_type"] == "custom" else settings["pad_type"]
    return on_planes(layer, "conv_transpose", **settings)


_PADDING_3D = ("custom", "valid", "same")


def _window3d(layer: NetworkLayer) -> dict[str, Any]:
    """Stride and padding of a layer over depth, height and width."""
    sides = ("Front", "Back", "Top", "Bottom", "Left", "Right")
    return {
        "strides": [max(1, step) for step in (layer.strideDepth, layer.strideHeight, layer.strideWidth)],
        "pad_type": _PADDING_3D[layer.paddingType],
        "pad": [getattr(layer, f"customPadding{side}") for side in sides],
    }


def _convolution3d(layer: NetworkLayer) -> Blob:
    size = [layer.kernelDepth, layer.kernelHeight, layer.kernelWidth]
    groups, out, inner = max(1, layer.nGroups), layer.outputChannels, layer.inputChannels
    if layer.isDeconvolution or len(layer.x.shape) != 5:
        raise LoadError("a 3D convolution must not be transposed, and its input must have five axes")
    return on_all_axes(
        layer,
        "conv",
        weight=weight_of(layer.weights, (out, inner // groups, *size), "the kernel"),
        bias=numbers_of(layer.bias, (out,), "the bias") if layer.hasBias else None,
        dilations=[max(1, gap) for gap in (layer.dilationDepth, layer.dilationHeight, layer.dilationWidth)],
        groups=groups,
        **_window3d(layer),
    )


def _pooling3d(layer: NetworkLayer) -> Blob:
    window = {"kernel_sizes": [layer.kernelDepth, layer.kernelHeight, layer.kernelWidth], **_window3d(layer)}
    if layer.type == 0:
        return on_all_axes(layer, "max_pool", **window)
    return on_all_axes(layer, "avg_pool", exclude_padding_from_average=layer.countExcludePadding, **window)


_POOLS = (("max_pool", "reduce_max"), ("avg_pool", "reduce_mean"), ("l2_pool", "reduce_l2_norm"))


def _pooling(layer: NetworkLayer) -> Blob:
    pool, reduction = _POOLS[layer.type]
    if layer.globalPooling:
        return on_planes(layer, reduction, axes=[2, 3], keep_dims=True)
    form = layer.params.WhichOneof("PoolingPaddingType")
    window = {"kernel_sizes": _as_pair(layer.kernelSize, 3), "strides": _as_pair(layer.stride, 1)}
    if form == "includeLastPixel":
        amounts = [int(amount) for amount in layer.includeLastPixel.paddingAmounts] or [0, 0]
        window |= {"pad_type": "custom", "pad": [side for side in amounts for _ in range(2)], "ceil_mode": True}
    else:
        window |= _padding_of(layer, form)
    if pool == "avg_pool":
        window["exclude_padding_from_average"] = layer.avgPoolExcludePadding
    return on_planes(layer, pool, **window)


def _inner_product(layer: NetworkLayer) -> Blob:
    """A product along the last axis, or over channels, height and width together if the value has them."""
    shape = layer.x.shape
    wide, out = int(layer.inputChannels), int(layer.outputChannels)
    weights = {
        "weight": weight_of(layer.weights, (out, wide), "the weight"),
        "bias": numbers_of(layer.bias, (out,), "the bias") if layer.hasBias else None,
    }
    if len(shape) < 4:
        return on_all_axes(layer, "linear", **weights)
    rows = shaped(as_tensor(layer.x.value), (math.prod(shape[:-3]), math.prod(shape[-3:])))
    return Blob(called(OPS["linear"], {"x": rows, **weights}, None), (*shape[:-3], out, 1, 1))


def _padding(layer: NetworkLayer) -> Blob:
    form = layer.params.WhichOneof("PaddingType") or "constant"
    mode = {"constant": "constant", "reflection": "reflect", "replication": "replicate"}[form]
    return on_planes(layer, "pad", pad=_borders(layer.paddingAmounts), mode=mode, constant_val=layer.constant.value)


def _crop(layer: NetworkLayer) -> Blob:
    if len(layer.inputs) > 1:
        offset = [int(place) for place in layer.offset] or [0, 0]
        sizes = layer.inputs[1].shape[-2:]
        return on_planes(layer, "slice_by_size", begin=[0, 0, *offset], size=[-1, -1, *sizes])
    borders = _borders(layer.cropAmounts)
    return on_planes(layer, "crop", crop_height=borders[:2], crop_width=borders[2:])


def _upsample(layer: NetworkLayer) -> Blob:
    factors = [float(factor) for factor in layer.fractionalScalingFactor] or [float(n) for n in layer.scalingFactor]
    height, width = factors or [1.0, 1.0]
    scale = {"scale_factor_height": height, "scale_factor_width": width}
    if layer.mode == 0:
        return on_planes(layer, "upsample_nearest_neighbor", **scale)
    aligned, half_pixel = layer.linearUpsampleMode == 1, layer.linearUpsampleMode not in (0, 1)
    return on_planes(layer, "upsample_bilinear", align_corners=aligned, half_pixel_centers=half_pixel, **scale)


_SAMPLING = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS")
_BOXES = ("CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST")


def _resize(layer: NetworkLayer) -> Blob:
    height, width = _as_pair(layer.targetSize, 1)
    mode = _SAMPLING[layer.mode.samplingMethod]
    return on_planes(layer, "resize_bilinear", target_size_height=height, target_size_width=width, sampling_mode=mode)


def _crop_resize(layer: NetworkLayer) -> Blob:
    boxes = layer.inputs[1].operand() if len(layer.inputs) > 1 else None
    height, width = _as_pair(layer.targetSize, 1)
    arguments = {
        "x": layer.x.planes(),
        "roi": boxes,
        "target_height": height,
        "target_width": width,
        "normalized_coordinates": layer.normalizedCoordinates,
        "spatial_scale": layer.spatialScale or 1.0,
        "box_coordinate_mode": _BOXES[layer.boxIndicesMode.boxMode],
        "sampling_mode": _SAMPLING[layer.mode.samplingMethod],
    }
    return Blob.of(called(OPS["crop_resize"], arguments, None))


def _batchnorm(layer: NetworkLayer) -> Blob:
    channels = (int(layer.channels),)
    names = ("gamma", "beta") if layer.computeMeanVar else ("gamma", "beta", "mean", "variance")
    if layer.computeMeanVar and not layer.instanceNormalization:
        raise LoadError("computing statistics over the batch is not supported; save mean and variance in the model")
    numbers = {name: numbers_of(getattr(layer, name), channels, f"the {name}") for name in names}
    kind = "instance_norm" if layer.computeMeanVar else "batch_norm"
    return on_planes(layer, kind, epsilon=layer.epsilon, **numbers)


def _layer_norm(layer: NetworkLayer) -> Blob:
    x, shape = layer.x.shape, tuple(int(extent) for extent in layer.normalizedShape)
    if x[len(x) - len(shape) :] != shape:
        raise LoadError(f"normalizedShape {list(shape)} does not match the last axes of the input {list(x)}")
    gains = {name: numbers_of(getattr(layer, name), shape, f"the {name}") for name in ("gamma", "beta")}
    axes = list(range(len(x) - len(shape), len(x)))
    return on_all_axes(layer, "layer_norm", axes=axes, epsilon=layer.eps, **gains)


def _flatten(layer: NetworkLayer) -> Blob:
    """Flatten channels, height and width to one axis, with the channels first or last."""
    x, shape = layer.x.planes(), layer.x.shape
    x = x.transpose([0, 2, 3, 1]) if layer.mode == 1 else x
    folded = (math.prod(shape[:-3]), math.prod(shape[-3:]), 1, 1)
    return Blob(shaped(x, folded), (*shape[:-3], *folded[1:]))


def _slice(layer: NetworkLayer) -> Blob:
    begin, end, step = int(layer.startIndex), int(layer.endIndex), max(1, int(layer.stride))
    return on_planes(layer, "slice_axis", axis=1 + layer.axis, begin=begin, end=end, step=step)


LAYERS = {
    "batchnorm": _batchnorm,
    "convolution": _convolution,
    "convolution3d": _convolution3d,
    "crop": _crop,
    "cropResize": _crop_resize,
    "flatten": _flatten,
    "globalPooling3d": lambda layer: on_all_axes(
        layer, "reduce_max" if layer.type == 0 else "reduce_mean", axes=[-3, -2, -1], keep_dims=True
    ),
    "innerProduct": _inner_product,
    "l2normalize": lambda layer: on_planes(layer, "l2_norm", epsilon=layer.epsilon),
    "layerNormalization": _layer_norm,
    "lrn": lambda layer: on_planes(
        layer, "local_response_norm", size=int(layer.localSize), alpha=layer.alpha, beta=layer.beta, k=layer.k or 1.0
    ),
    "mvn": lambda layer: on_planes(
        layer,
        "centred",
        axes=[1, 2, 3] if layer.acrossChannels else [2, 3],
        scale=layer.normalizeVariance,
        epsilon=layer.epsilon,
    ),
    "padding": _padding,
    "pooling": _pooling,
    "pooling3d": _pooling3d,
    "reorganizeData": lambda layer: on_planes(
        layer, ("space_to_depth", "depth_to_space", "pixel_shuffle")[layer.mode], block_size=int(layer.blockSize)
    ),
    "resizeBilinear": _resize,
    "slice": _slice,
    "softmax": lambda layer: (
        on_all_axes(layer, "softmax") if len(layer.x.shape) < 3 else on_planes(layer, "softmax", axis=1)
    ),
    "upsample": _upsample,
}
