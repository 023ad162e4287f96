"""Layers over channels, height and width: convolutions, pools, pads, resizes and norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreml.network.blob import Blob, Layer, of_planes
from aneforge.frontends.coreml.network.weights import numbers_of, weight_of
from aneforge.frontends.forms import (
    average_pool,
    convolution,
    linear,
    max_pool,
    padded,
    same_pads,
    sliced,
    transposed_convolution,
)
from aneforge.frontends.ops.images import boxed, enlarged, nearest, resized
from aneforge.frontends.ops.norms import l2_normalised
from aneforge.frontends.values import Value, as_tensor, shaped
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["LAYERS"]

Pads = list[tuple[int, int]]


def _borders(amounts: Any) -> Pads:
    """The amounts before and after height and width; zero where the file states none."""
    borders = [(int(border.startEdgeSize), int(border.endEdgeSize)) for border in amounts.borderAmounts]
    if len(borders) not in (0, 2):
        raise LoadError(f"borders are given for {len(borders)} axes; expected 2")
    return borders or [(0, 0), (0, 0)]


def _as_pair(values: Any, default: int) -> list[int]:
    sizes = [int(size) for size in values] or [default, default]
    if len(sizes) != 2 or min(sizes) < 1:
        raise LoadError(f"{sizes} does not fit height and width; expected two numbers of 1 or more")
    return sizes


def _convolution(layer: Layer) -> Blob:
    x = layer.x.planes()
    size, stride, dilation = (
        _as_pair(layer.kernelSize, 3),
        _as_pair(layer.stride, 1),
        _as_pair(layer.dilationFactor, 1),
    )
    groups, out = max(1, int(layer.nGroups)), int(layer.outputChannels)
    inner = int(layer.kernelChannels)
    lead = (inner, out // groups) if layer.isDeconvolution else (out, inner)
    computed = [blob.planes() if len(blob.shape) > 3 else blob.full() for blob in layer.inputs[1:]]
    weight: Value = computed[0] if computed else weight_of(layer.weights, (*lead, *size), "the kernel")
    bias: Value | None = numbers_of(layer.bias, (out,), "the bias") if layer.hasBias and not computed else None
    bias = computed[1].reshape(out) if len(computed) > 1 else bias
    is_same = layer.params.WhichOneof("ConvolutionPaddingType") == "same"
    lower = is_same and layer.same.asymmetryMode == 1
    if layer.isDeconvolution:
        cut = _deconvolution_cut(layer, x, size, stride, dilation, is_same, lower)
        result = transposed_convolution(x, weight, bias, stride=stride, pads=cut, dilation=dilation, groups=groups)
        return of_planes(result, layer.x.shape)
    pads = same_pads(x.shape[2:], size, stride, dilation, lower) if is_same else _borders(layer.valid.paddingAmounts)
    result = convolution(x, weight, bias, stride=stride, pads=pads, dilation=dilation, groups=groups)
    return of_planes(result, layer.x.shape)


def _deconvolution_cut(
    layer: Layer, x: Tensor, size: list[int], stride: list[int], dilation: list[int], is_same: bool, lower: bool
) -> Pads:
    uncut = [(x.shape[2 + i] - 1) * stride[i] + dilation[i] * (size[i] - 1) + 1 for i in range(2)]
    stated_shape = [int(extent) for extent in layer.outputShape]
    if not is_same and not stated_shape:
        return _borders(layer.valid.paddingAmounts)
    target = stated_shape or [x.shape[2 + i] * stride[i] for i in range(2)]
    total = [uncut[i] - target[i] for i in range(2)]
    before = [max(0, -(-excess // 2) if lower else excess // 2) for excess in total]
    return [(start, excess - start) for start, excess in zip(before, total, strict=True)]


def _convolution3d(layer: Layer) -> Blob:
    size = [layer.kernelDepth, layer.kernelHeight, layer.kernelWidth]
    stride = [max(1, step) for step in (layer.strideDepth, layer.strideHeight, layer.strideWidth)]
    dilation = [max(1, gap) for gap in (layer.dilationDepth, layer.dilationHeight, layer.dilationWidth)]
    groups, out, inner = max(1, layer.nGroups), layer.outputChannels, layer.inputChannels
    x = layer.x.full()
    if layer.isDeconvolution or x.ndim != 5:
        raise LoadError("a 3D convolution must not be transposed, and its input must have five axes")
    weight = weight_of(layer.weights, (out, inner // groups, *size), "the kernel")
    bias = numbers_of(layer.bias, (out,), "the bias") if layer.hasBias else None
    pads = _pads3d(layer, x, size, stride, dilation)
    result = convolution(x, weight, bias, stride=stride, pads=pads, dilation=dilation, groups=groups)
    return Blob.of(result)


def _pads3d(layer: Layer, x: Tensor, size: list[int], stride: list[int], dilation: list[int]) -> Pads:
    if layer.paddingType == 2:
        return same_pads(x.shape[2:], size, stride, dilation)
    if layer.paddingType == 1:
        return [(0, 0)] * 3
    return [
        (layer.customPaddingFront, layer.customPaddingBack),
        (layer.customPaddingTop, layer.customPaddingBottom),
        (layer.customPaddingLeft, layer.customPaddingRight),
    ]


def _pooling3d(layer: Layer) -> Blob:
    x = layer.x.full()
    size = [layer.kernelDepth, layer.kernelHeight, layer.kernelWidth]
    stride = [max(1, step) for step in (layer.strideDepth, layer.strideHeight, layer.strideWidth)]
    pads = _pads3d(layer, x, size, stride, [1, 1, 1])
    if layer.type == 0:
        return Blob.of(max_pool(x, size, stride=stride, pads=pads))
    return Blob.of(average_pool(x, size, stride=stride, pads=pads, count_pad=not layer.countExcludePadding))


def _global_pooling3d(layer: Layer) -> Blob:
    x = layer.x.full()
    axes = tuple(range(x.ndim - 3, x.ndim))
    return Blob.of(x.amax(axes) if layer.type == 0 else x.mean(axes))


def _pooling(layer: Layer) -> Blob:
    x = layer.x.planes()
    if layer.globalPooling:
        reductions = {0: lambda: x.amax((2, 3)), 1: lambda: x.mean((2, 3)), 2: lambda: x.sum_square((2, 3)).sqrt()}
        return of_planes(reductions[layer.type](), layer.x.shape)
    size, stride = _as_pair(layer.kernelSize, 3), _as_pair(layer.stride, 1)
    form = layer.params.WhichOneof("PoolingPaddingType")
    ceil = form == "includeLastPixel"
    if form == "same":
        pads = same_pads(x.shape[2:], size, stride, lower=layer.same.asymmetryMode == 1)
    elif ceil:
        pads = [(amount, amount) for amount in ([int(n) for n in layer.includeLastPixel.paddingAmounts] or [0, 0])]
    else:
        pads = _borders(layer.valid.paddingAmounts)
    if layer.type == 0:
        pooled = max_pool(x, size, stride=stride, pads=pads, ceil=ceil)
    elif layer.type == 1:
        counted = not layer.avgPoolExcludePadding
        pooled = average_pool(x, size, stride=stride, pads=pads, ceil=ceil, count_pad=counted)
    else:
        if ceil:
            raise LoadError("an L2 pool with includeLastPixel padding is not supported; use valid or same")
        squares = padded(x.square(), [(0, 0), (0, 0), *pads])
        pooled = (average_pool(squares, size, stride=stride) * float(math.prod(size))).sqrt()
    return of_planes(pooled, layer.x.shape)


def _inner_product(layer: Layer) -> Blob:
    """A product along the last axis, or over channels, height and width together if the value has them."""
    shape = layer.x.shape
    wide, out = int(layer.inputChannels), int(layer.outputChannels)
    weight = weight_of(layer.weights, (out, wide), "the weight")
    bias = numbers_of(layer.bias, (out,), "the bias") if layer.hasBias else None
    if len(shape) < 4:
        return Blob.of(linear(layer.x.full(), weight, bias))
    rows = shaped(as_tensor(layer.x.value), (math.prod(shape[:-3]), math.prod(shape[-3:])))
    return Blob(linear(rows, weight, bias), (*shape[:-3], out, 1, 1))


def _padding(layer: Layer) -> Blob:
    form = layer.params.WhichOneof("PaddingType") or "constant"
    mode = {"constant": "constant", "reflection": "reflect", "replication": "replicate"}[form]
    widths = [(0, 0), (0, 0), *_borders(layer.paddingAmounts)]
    return of_planes(padded(layer.x.planes(), widths, mode, layer.constant.value), layer.x.shape)


def _crop(layer: Layer) -> Blob:
    x = layer.x.planes()
    if len(layer.inputs) > 1:
        offset = [int(place) for place in layer.offset] or [0, 0]
        sizes = layer.inputs[1].shape[-2:]
        begin = [0, 0, *offset]
        return of_planes(x.slice_by_size(begin, [*x.shape[:2], *sizes]), layer.x.shape)
    (top, bottom), (left, right) = _borders(layer.cropAmounts)
    x = sliced(sliced(x, 2, top, x.shape[2] - bottom), 3, left, x.shape[3] - right)
    return of_planes(x, layer.x.shape)


def _upsample(layer: Layer) -> Blob:
    x = layer.x.planes()
    factors = [float(factor) for factor in layer.fractionalScalingFactor] or [float(n) for n in layer.scalingFactor]
    factors = factors or [1.0, 1.0]
    height, width = (math.floor(extent * factor + 1e-6) for extent, factor in zip(x.shape[2:], factors, strict=True))
    if layer.mode == 0:
        return of_planes(nearest(x, height, width), layer.x.shape)
    if layer.linearUpsampleMode == 0:
        return of_planes(resized(x, height, width, "DEFAULT"), layer.x.shape)
    aligned = layer.linearUpsampleMode == 1
    return of_planes(enlarged(x, height, width, aligned, not aligned), layer.x.shape)


_SAMPLING = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS")


def _resize(layer: Layer) -> Blob:
    height, width = _as_pair(layer.targetSize, 1)
    return of_planes(resized(layer.x.planes(), height, width, _SAMPLING[layer.mode.samplingMethod]), layer.x.shape)


def _crop_resize(layer: Layer) -> Blob:
    x, boxes = layer.x.planes(), layer.inputs[1].known if len(layer.inputs) > 1 else None
    if boxes is None:
        raise LoadError("the boxes are computed while the network runs; the engine needs fixed boxes")
    height, width = _as_pair(layer.targetSize, 1)
    flat = boxes.reshape(boxes.shape[0], -1).astype(np.float64)
    images = [range(x.shape[0])] * len(flat)
    if flat.shape[1] == 5:
        images, flat = [range(int(number), int(number) + 1) for number in flat[:, 0]], flat[:, 1:]
    mode = layer.boxIndicesMode.boxMode
    flat = flat[:, [1, 0, 3, 2]] if mode in (1, 3) else flat
    if mode in (2, 3):
        flat = np.concatenate([flat[:, :2] - flat[:, 2:] / 2, flat[:, :2] + flat[:, 2:] / 2], axis=1)
    if layer.normalizedCoordinates:
        flat = flat * (np.array([x.shape[2], x.shape[3]] * 2) - 1)
    flat = flat * (layer.spatialScale or 1.0)
    sampling = _SAMPLING[layer.mode.samplingMethod]
    crops = [
        af.concat([boxed(sliced(x, 0, i, i + 1), box, height, width, sampling) for i in chosen], axis=0)
        for box, chosen in zip(flat, images, strict=True)
    ]
    return Blob.of(af.stack(crops, axis=0))


def _batchnorm(layer: Layer) -> Blob:
    x, channels = layer.x.planes(), int(layer.channels)
    gamma, beta = (numbers_of(getattr(layer, name), (channels,), f"the {name}") for name in ("gamma", "beta"))
    if layer.computeMeanVar:
        if not layer.instanceNormalization:
            raise LoadError(
                "computing statistics over the batch is not supported; save mean and variance in the model"
            )
        return of_planes(af.instance_norm(x, gamma, beta, layer.epsilon), layer.x.shape)
    mean, variance = (numbers_of(getattr(layer, name), (channels,), f"the {name}") for name in ("mean", "variance"))
    return of_planes(af.batch_norm(x, gamma, beta, mean, variance, layer.epsilon), layer.x.shape)


def _mvn(layer: Layer) -> Blob:
    x = layer.x.planes()
    axes = (1, 2, 3) if layer.acrossChannels else (2, 3)
    centred = x - x.mean(axes)
    if layer.normalizeVariance:
        centred = centred * centred.square().mean(axes).rsqrt(layer.epsilon)
    return of_planes(centred, layer.x.shape)


def _lrn(layer: Layer) -> Blob:
    size, k = int(layer.localSize), layer.k or 1.0
    result = af.local_response_norm(layer.x.planes(), size, layer.alpha, layer.beta, k)
    return of_planes(result, layer.x.shape)


def _layer_norm(layer: Layer) -> Blob:
    x, shape = layer.x.full(), tuple(int(extent) for extent in layer.normalizedShape)
    if x.shape[x.ndim - len(shape) :] != shape:
        raise LoadError(f"normalizedShape {list(shape)} does not match the last axes of the input {list(x.shape)}")
    gamma, beta = (numbers_of(getattr(layer, name), shape, f"the {name}") for name in ("gamma", "beta"))
    if len(shape) == 1:
        return Blob.of(x.layer_norm(gamma, beta, layer.eps))
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    centred = x - x.mean(axes)
    return Blob.of(centred * centred.square().mean(axes).rsqrt(layer.eps) * const(gamma) + const(beta))


def _reorganize(layer: Layer) -> Blob:
    forms = (af.space_to_depth, af.depth_to_space, af.pixel_shuffle)
    return of_planes(forms[layer.mode](layer.x.planes(), int(layer.blockSize)), layer.x.shape)


def _flatten(layer: Layer) -> Blob:
    """Flatten channels, height and width to one axis, with the channels first or last."""
    x, shape = layer.x.planes(), layer.x.shape
    x = x.transpose([0, 2, 3, 1]) if layer.mode == 1 else x
    folded = (math.prod(shape[:-3]), math.prod(shape[-3:]), 1, 1)
    return Blob(shaped(x, folded), (*shape[:-3], *folded[1:]))


def _slice(layer: Layer) -> Blob:
    x = layer.x.planes()
    axis = 1 + layer.axis
    end = int(layer.endIndex)
    return of_planes(sliced(x, axis, int(layer.startIndex), end, max(1, int(layer.stride))), layer.x.shape)


def _softmax(layer: Layer) -> Blob:
    if len(layer.x.shape) < 3:
        return Blob.of(layer.x.full().softmax(-1))
    return of_planes(layer.x.planes().softmax(1), layer.x.shape)


LAYERS = {
    "batchnorm": _batchnorm,
    "convolution": _convolution,
    "convolution3d": _convolution3d,
    "crop": _crop,
    "cropResize": _crop_resize,
    "flatten": _flatten,
    "globalPooling3d": _global_pooling3d,
    "innerProduct": _inner_product,
    "l2normalize": lambda layer: of_planes(l2_normalised(layer.x.planes(), layer.epsilon), layer.x.shape),
    "layerNormalization": _layer_norm,
    "lrn": _lrn,
    "mvn": _mvn,
    "padding": _padding,
    "pooling": _pooling,
    "pooling3d": _pooling3d,
    "reorganizeData": _reorganize,
    "resizeBilinear": _resize,
    "slice": _slice,
    "softmax": _softmax,
    "upsample": _upsample,
}
