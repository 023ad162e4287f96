"""Graphs that make no sense are refused at the line that builds them, with the op, the shapes and the rule."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import re
import zipfile

import numpy as np
import pytest
from test_graph_ops import CASES as CASES_BY_OP

import aneforge as af

X = af.input((2, 3))
V = af.input((4,))
IMAGE = af.input((1, 4, 8, 8))
BATCH = af.input((2, 4, 8, 8))
CUBE = af.input((2, 3, 4))
BOOL = X > 0
PIXELS = af.input((1, 3, 4, 4), "uint8")
Q, K = af.input((1, 2, 4, 8)), af.input((1, 2, 6, 8))
POINTS = af.input((5, 3))
RUNTIME = af.input((4, 4, 3, 3))


def w(*shape):
    return np.ones(shape, np.float32)


def with_nan(*shape):
    array = w(*shape)
    array.flat[-1] = np.nan
    return array


class Foreign:
    """Another library's array that cannot be read."""

    shape = (3,)

    def __array__(self, *_, **__):
        raise RuntimeError("device memory")


class ForeignInts:
    def __array__(self, *_, **__):
        return np.arange(3)


# What to build, the op that must be named, and words of the rule and of the shapes.
CASES = [
    # Convolutions.
    (
        "channel mismatch",
        lambda: af.conv(IMAGE, w(8, 3, 3, 3)),
        "conv",
        "3 channels per group|[1, 4, 8, 8], [8, 3, 3, 3]",
    ),
    (
        "groups and input",
        lambda: af.conv(IMAGE, w(6, 1, 3, 3), groups=3),
        "conv",
        "channels 4 are not divisible|[6, 1, 3, 3]",
    ),
    (
        "groups and output",
        lambda: af.conv(IMAGE, w(5, 2, 3, 3), groups=2),
        "conv",
        "output channels 5 are not divisible",
    ),
    (
        "kernel too large",
        lambda: af.conv(IMAGE, w(4, 4, 11, 3), pad=1),
        "conv",
        "window of 11 does not fit|8 padded to 10",
    ),
    ("dilated too large", lambda: af.conv(IMAGE, w(4, 4, 3, 3), dilation=4), "conv", "window of 9 does not fit"),
    ("zero stride", lambda: af.conv(IMAGE, w(4, 4, 3, 3), stride=0), "conv", "stride must be at least 1|[1, 4, 8, 8]"),
    ("negative pad", lambda: af.conv(IMAGE, w(4, 4, 3, 3), pad=-1), "conv", "pad must be zero or more"),
    ("pad of three", lambda: af.conv(IMAGE, w(4, 4, 3, 3), pad=(1, 1, 1)), "conv", "top, bottom, left, right"),
    ("zero groups", lambda: af.conv(IMAGE, w(4, 4, 3, 3), groups=0), "conv", "groups must be at least 1"),
    ("float groups", lambda: af.conv(IMAGE, w(4, 4, 3, 3), groups=2.0), "conv", "groups must be a whole number"),
    ("bool stride", lambda: af.conv(IMAGE, w(4, 4, 3, 3), stride=True), "conv", "stride must be a whole number"),
    ("stride of three", lambda: af.conv(IMAGE, w(4, 4, 3, 3), stride=(1, 1, 1)), "conv", "one or two numbers"),
    ("rank 3 into conv", lambda: af.conv(CUBE, w(4, 4, 3, 3)), "conv", "must have rank 4|[2, 3, 4]"),
    ("rank 3 kernel", lambda: af.conv(IMAGE, w(4, 4, 3)), "conv", "weight must have rank 4|[4, 4, 3]"),
    (
        "wrong bias",
        lambda: af.conv(IMAGE, w(8, 4, 1, 1), bias=w(4)),
        "conv",
        "bias of shape [4]|per output channel (8)",
    ),
    ("column bias", lambda: af.conv(IMAGE, w(8, 4, 1, 1), bias=w(8, 1)), "conv", "bias of shape [8, 1]"),
    ("transposed channels", lambda: af.conv_transpose(IMAGE, w(3, 4, 2, 2)), "conv_transpose", "3 input channels"),
    (
        "transposed groups",
        lambda: af.conv_transpose(IMAGE, w(4, 2, 2, 2), groups=3),
        "conv_transpose",
        "not divisible",
    ),
    (
        "transposed to nothing",
        lambda: af.conv_transpose(IMAGE, w(4, 4, 1, 1), pad=4),
        "conv_transpose",
        "leaves nothing",
    ),
    (
        "transposed bias",
        lambda: af.conv_transpose(IMAGE, w(4, 4, 1, 1), bias=w(3)),
        "conv_transpose",
        "bias of shape [3]",
    ),
    (
        "batch of runtime kernel",
        lambda: af.dynamic_conv(BATCH, RUNTIME),
        "dynamic_conv",
        "batch is 2|batch 1 only|[2, 4, 8, 8]",
    ),
    (
        "stored runtime kernel",
        lambda: af.dynamic_conv(IMAGE, w(4, 4, 3, 3)),
        "dynamic_conv",
        "use conv for a stored kernel",
    ),
    ("conv2d without parameter", lambda: af.conv2d(IMAGE, w(4, 4, 3, 3)), "conv2d", "conv_param"),
    ("conv2d window", lambda: af.conv2d(IMAGE, af.conv_param(w(4, 4, 9, 9))), "conv2d", "does not fit 8 x 8"),
    ("conv2d stride", lambda: af.conv2d(IMAGE, af.conv_param(w(4, 4, 3, 3)), stride=0), "conv2d", "stride"),
    ("conv_param of a matrix", lambda: af.conv_param(w(4, 4)), "conv_param", "[Cout, Cin, kH, kW]"),
    # Products.
    ("inner extents", lambda: X @ w(4, 2), "matmul", "3 columns|4 rows|[2, 3], [4, 2]"),
    (
        "batch of matmul",
        lambda: af.input((2, 3, 4)) @ af.input((3, 4, 5)),
        "matmul",
        "do not broadcast|[2, 3, 4], [3, 4, 5]",
    ),
    ("vector product", lambda: V @ w(4, 2), "matmul", "rank 2 or more|[4], [4, 2]"),
    ("bmm_weight batch", lambda: CUBE.bmm_weight(w(3, 4, 5)), "bmm_weight", "with one B|[2, 3, 4] @ [3, 4, 5]"),
    ("linear features", lambda: X.linear(w(4, 2)), "linear", "2 features, the input has 3"),
    ("linear bias", lambda: X.linear(w(4, 3), w(3)), "linear", "bias of shape [3]|(4)"),
    ("linear rank", lambda: X.linear(w(4, 3, 1)), "linear", "weight must have rank 2"),
    ("einsum operands", lambda: af.einsum("ij,jk->ik", X), "einsum", "names 2 operands, but got 1"),
    ("einsum rank", lambda: af.einsum("ijk->i", X), "einsum", "names 3 axes of a tensor of rank 2|[2, 3]"),
    ("einsum extent", lambda: af.einsum("ij,jk->ik", X, w(4, 2)), "einsum", "'j' is 3 and 4"),
    ("einsum output", lambda: af.einsum("ij->iq", X), "einsum", "must name axes of the operands|'iq'"),
    ("einsum twice", lambda: af.einsum("ij->ii", X), "einsum", "each axis must be named once|np.eye"),
    ("einsum diagonal", lambda: af.einsum("ii->i", X), "einsum", "not square"),
    ("einsum three", lambda: af.einsum("ij,jk,kl->il", X, w(3, 2), w(2, 2)), "einsum", "two at a time"),
    ("einsum letters", lambda: af.einsum("i1->i", X), "einsum", "letters"),
    ("einsum dots", lambda: af.einsum("...i->i", CUBE), "einsum", "no place in the output"),
    ("einsum of nothing", lambda: af.einsum(None, X), "einsum", "cannot take these arguments"),
    ("native einsum", lambda: af.einsum_native("ab,bc->ac", Q, Q), "einsum", "nchw,nwhu->nchu"),
    ("native einsum shapes", lambda: af.einsum_native("nchw,nwhu->nchu", Q, K), "einsum", "must agree|[1, 2, 4, 8]"),
    # Elementwise.
    ("broadcast", lambda: X + w(4), "add", "do not broadcast|[2, 3] and [4]|axis -1"),
    ("broadcast of three", lambda: af.where(BOOL, w(2, 3), w(5, 3)), "select", "do not broadcast|[5, 3]"),
    ("relu of bool", lambda: BOOL.relu(), "relu", "needs fp16 operands, not bool|[2, 3]"),  # noqa: PLW0108
    ("bool and fp16", lambda: BOOL * X, "mul", "not bool"),
    ("bool and fp16 joined", lambda: af.concat([BOOL, X]), "concat", "bool and fp16|one type"),
    ("pixels computed", lambda: PIXELS + 1.0, "add", "not uint8|image_input"),
    ("compare bools", lambda: BOOL > X, "greater", "not bool"),
    ("not of fp16", lambda: ~X, "logical_not", "needs bool operands"),
    ("and of fp16", lambda: X & BOOL, "logical_and", "needs bool operands"),
    ("and of an array", lambda: BOOL & w(2, 3), "logical_and", "ndarray, not a graph tensor"),
    ("where without bool", lambda: af.where(X, X, X), "select", "bool condition"),
    ("where of bools", lambda: af.where(BOOL, BOOL, BOOL), "select", "fp16 values"),
    ("softmax of bool", lambda: BOOL.softmax(-1), "softmax", "not bool"),
    ("cumsum of bool", lambda: BOOL.cumsum(-1), "cumsum", "not bool"),
    ("clip upside down", lambda: X.clip(2, 1), "clip", "lo 2 is above hi 1|[2, 3]"),
    ("NaN scalar", lambda: X * math.nan, "mul", "NaN|[2, 3]"),
    ("NaN attribute", lambda: X.elu(math.nan), "elu", "alpha is NaN"),
    ("NaN clip", lambda: X.clip(math.nan, 1), "clip", "lo is NaN"),
    ("scalar beyond fp16", lambda: X + 70000, "add", "beyond the fp16 limit"),
    ("huge whole number", lambda: X + 10**400, "add", "beyond the fp16 limit"),
    ("text scalar", lambda: X.leaky_relu("0.1"), "leaky_relu", "must be a number, not '0.1'"),
    ("bool scalar", lambda: X + True, "add", "True"),
    ("complex scalar", lambda: X * 1j, "mul", "complex"),
    ("None", lambda: X + None, "add", "None|[2, 3]"),
    ("text", lambda: X - "abc", "sub", "'abc'"),
    ("record", lambda: X / {"a": 1}, "truediv", "dict"),
    ("set", lambda: af.maximum(X, {1.0}), "maximum", "set"),
    ("foreign array", lambda: X + Foreign(), "add", "device memory|[2, 3], [3]"),
    ("foreign whole numbers", lambda: X + ForeignInts(), "add", "int64"),
    ("function", lambda: X + abs, "add", "builtin_function"),
    ("prelu rank", lambda: X.prelu(w(3)), "prelu", "rank 3 or more"),
    ("prelu length", lambda: IMAGE.prelu(w(3)), "prelu", "one value per channel (4)|[3]"),
    ("cast to fp32", lambda: BOOL.cast("fp32"), "cast", "fp32"),
    ("cast to uint8", lambda: X.cast("uint8"), "cast", "fp16 only"),
    # Weights.
    ("NaN weight", lambda: X @ with_nan(3, 2), "matmul", "weight holds NaN at index (2, 1)"),
    ("NaN half", lambda: X @ with_nan(3, 2).astype(np.float16), "matmul", "NaN at index (2, 1)"),
    ("whole weights", lambda: X @ np.ones((3, 2), np.int64), "matmul", "int64|astype"),
    ("bool weights", lambda: X @ np.ones((3, 2), bool), "matmul", "bool"),
    ("list of bools", lambda: af.maximum(X, [True, False, True]), "maximum", "bool"),
    ("weights beyond fp16", lambda: X @ np.full((3, 2), 1e6), "matmul", "1e+06 at index (0, 0)"),
    ("text weights", lambda: X.linear("abc"), "linear", "'abc'"),
    ("text array", lambda: X @ np.array([["a"]] * 3), "matmul", "not real numbers"),
    ("object array", lambda: X @ np.array([[None]] * 3), "matmul", "object values"),
    ("complex array", lambda: X @ np.ones((3, 2), complex), "matmul", "complex128 values"),
    ("ragged list", lambda: af.maximum(X, [[1.0], [1.0, 2.0]]), "maximum", "is not an array"),
    ("empty weight", lambda: X @ np.ones((3, 0)), "matmul", "is empty|[3, 0]"),
    ("list of tensors", lambda: af.maximum(X, [X, X]), "maximum", "no value yet"),
    ("rank 6 constant", lambda: af.const(w(1, 1, 1, 1, 1, 1)), "const", "rank 6"),
    ("text parameter", lambda: af.parameter("abc"), "parameter", "not real numbers"),
    ("NaN parameter", lambda: af.parameter(with_nan(2)), "parameter", "NaN"),
    # Inputs.
    ("500 TB", lambda: af.input((500_000, 500_000, 1000)), "input", "bytes|2^42|[500000, 500000, 1000]"),
    ("500 TB by steps", lambda: af.input((1 << 20,)).tile([1 << 30]), "tile", "2^42"),
    ("huge extent", lambda: af.input((10**30,)), "input", "2^42"),
    ("unprintable extent", lambda: af.input((10**5000,)), "input", "cannot take these arguments"),
    ("rank 6", lambda: af.input((1, 1, 1, 1, 1, 1)), "input", "rank 6|more than 5"),
    ("rank 0", lambda: af.input(()), "input", "at least one axis"),
    ("zero axis", lambda: af.input((2, 0, 3)), "input", "at least 1, not 0"),
    ("negative axis", lambda: af.input((2, -3)), "input", "at least 1, not -3"),
    ("float axis", lambda: af.input((2.0, 3)), "input", "whole number, not 2.0"),
    ("text shape", lambda: af.input("23"), "input", "whole number, not '23'"),
    ("None shape", lambda: af.input(None), "input", "whole number, not None"),
    ("record shape", lambda: af.input({"n": 1}), "input", "whole number"),
    ("fp32 input", lambda: af.input((2,), "fp32"), "input", "fp16|'fp32'"),
    (
        "int8 input",
        lambda: af.input((2,), "int8"),
        "input",
        r"dtype 'int8' is not supported; choose one: fp16, uint8 (image port)",
    ),
    (
        "list dtype",
        lambda: af.input((2,), ["fp16"]),
        "input",
        r"is not supported; choose one: fp16, uint8 (image port)",
    ),
    ("NaN max_abs", lambda: af.input((2,), max_abs=math.nan), "input", "max_abs"),
    ("infinite max_abs", lambda: af.input((2,), max_abs=math.inf), "input", "finite"),
    ("negative max_abs", lambda: af.input((2,), max_abs=-1), "input", "zero or more"),
    ("text max_abs", lambda: af.input((2,), max_abs="1"), "input", "max_abs"),
    (
        "image scales",
        lambda: af.image_input((1, 3, 4, 4), scale=[1.0, 2.0]),
        "image_input",
        "one per channel|[1, 3, 4, 4]",
    ),
    ("image text", lambda: af.image_input((1, 3, 4, 4), scale="a"), "image_input", "cannot take these arguments"),
    # Reductions and axes.
    ("axis too high", lambda: X.sum(2), "sum", "axis 2 is out of range for rank 2|[2, 3]"),
    ("axis too low", lambda: X.mean(-3), "mean", "axis -3 is out of range"),
    ("axis twice", lambda: X.amax([0, -2]), "amax", "one axis twice"),
    ("no axis", lambda: X.sum([]), "sum", "axes is empty; name at least one axis"),
    ("float axis of a sum", lambda: X.sum(1.0), "sum", "whole number, not 1.0"),
    ("text axis", lambda: X.sum("a"), "sum", "whole number, not 'a'"),
    ("softmax axis", lambda: X.softmax(5), "softmax", "axis 5"),
    ("cumsum axis", lambda: X.cumsum(2), "cumsum", "axis 2"),
    ("argmax of rank 3", lambda: CUBE.argmax(-1), "argmax", "rows [C, W], not [2, 3, 4]"),
    # Norms.
    ("negative eps", lambda: X.layer_norm(w(3), w(3), -1e-5), "layer_norm", "eps must be zero or more"),
    ("NaN eps", lambda: X.rms_norm(w(3), math.nan), "rms_norm", "eps is NaN"),
    ("gamma length", lambda: X.layer_norm(w(2), w(3)), "layer_norm", "gamma of shape [2]|per feature (3)"),
    ("beta length", lambda: X.layer_norm(w(3), w(4)), "layer_norm", "beta of shape [4]"),
    ("group count", lambda: IMAGE.group_norm(w(4), w(4), 3), "group_norm", "4 are not divisible by 3"),
    ("no groups", lambda: IMAGE.group_norm(w(4), w(4), 0), "group_norm", "at least 1"),
    ("norm of a vector", lambda: V.group_norm(w(4), w(4), 1), "group_norm", "channels on axis 1"),
    ("negative variance", lambda: af.batch_norm(IMAGE, *[w(4)] * 3, -w(4)), "batch_norm", "negative variance"),
    ("variance length", lambda: af.batch_norm(IMAGE, *[w(4)] * 3, w(3)), "batch_norm", "var of shape [3]"),
    ("instance rank", lambda: af.instance_norm(X, w(3), w(3)), "instance_norm", "rank 3 or more"),
    ("window of zero", lambda: af.local_response_norm(IMAGE, 0), "local_response_norm", "size must be at least 1"),
    ("l2 axis", lambda: X.l2_norm(4), "l2_norm", "axis 4"),
    # Shape.
    ("reshape count", lambda: X.reshape(4, 2), "reshape", "6 elements cannot be reshaped to [4, 2], which holds 8"),
    ("reshape open", lambda: X.reshape(-1, -1), "reshape", "more than one axis open"),
    ("reshape rest", lambda: X.reshape(-1, 4), "reshape", "do not divide"),
    ("reshape zero", lambda: X.reshape(0, 6), "reshape", "below one"),
    ("reshape float", lambda: X.reshape(2.0, 3), "reshape", "whole number"),
    ("reshape rank 6", lambda: X.reshape(1, 1, 1, 1, 2, 3), "reshape", "rank 6"),
    ("reshape to nothing", lambda: X.reshape(()), "reshape", "at least one axis"),
    ("transpose short", lambda: CUBE.transpose([0, 1]), "transpose", "each of 3 axes once"),
    ("transpose twice", lambda: CUBE.transpose([0, 1, 1]), "transpose", "each of 3 axes once"),
    ("transpose range", lambda: CUBE.transpose([0, 1, 3]), "transpose", "axis 3"),
    ("transpose a number", lambda: CUBE.transpose(1), "transpose", "not iterable|[2, 3, 4]"),
    ("mT of a vector", lambda: V.mT, "mT", "rank 2 or more|[4]"),
    ("squeeze", lambda: X.squeeze(0), "squeeze", "axis 0 has 2 elements"),
    ("expand to rank 6", lambda: af.input((1,) * 5).expand_dims(0), "expand_dims", "rank 6"),
    ("expand twice", lambda: X.expand_dims([0, 0]), "expand_dims", "one axis twice"),
    ("flatten2d axis", lambda: X.flatten2d(3), "flatten2d", "axis 3 is out of range"),
    ("empty concat", lambda: af.concat([]), "concat", "list of tensors is empty"),
    ("concat of one tensor", lambda: af.concat(X), "concat", "list of tensors"),
    ("concat shapes", lambda: af.concat([X, w(3, 3)], 1), "concat", "differ outside axis 1|[3, 3]"),
    ("concat ranks", lambda: af.concat([X, CUBE]), "concat", "differ outside axis|[2, 3, 4]"),
    ("concat axis", lambda: af.concat([X, X], 2), "concat", "axis 2"),
    ("concat None", lambda: af.concat([X, None]), "concat", "None"),
    ("stack shapes", lambda: af.stack([X, V]), "stack", "must be equal, not [2, 3] and [4]"),
    ("stack to rank 6", lambda: af.stack([af.input((1,) * 5)] * 2), "stack", "rank 6"),
    ("split", lambda: af.split(X, 2, 1), "split", "3 does not divide into 2|[2, 3]"),
    ("split by zero", lambda: af.split(X, 0), "split", "at least 1"),
    ("tile count", lambda: X.tile([2]), "tile", "one repeat per axis (2)"),
    ("tile zero", lambda: X.tile([0, 1]), "tile", "at least 1"),
    ("reverse axis", lambda: X.reverse([2]), "reverse", "axis 2"),
    ("slice beyond", lambda: X.slice_by_size([0, 2], [2, 2]), "slice_by_size", "2 elements from 2 do not fit|[2, 3]"),
    ("slice of nothing", lambda: X.slice_by_size([0, 0], [2, 0]), "slice_by_size", "at least 1"),
    ("slice rank", lambda: X.slice_by_size([0], [2]), "slice_by_size", "per axis (2)"),
    ("slice negative", lambda: X.slice_by_size([-1, 0], [1, 1]), "slice_by_size", "zero or more"),
    ("slice numbers", lambda: X.slice_by_size(0, 1), "slice_by_size", "not iterable"),
    ("gather range", lambda: af.gather(X, [0, 2]), "gather", "index 2 is outside axis 0 of extent 2"),
    ("gather floats", lambda: af.gather(X, [0.0]), "gather", "whole numbers"),
    ("gather nothing", lambda: af.gather(X, []), "gather", "non-empty"),
    ("gather by tensor", lambda: af.gather(X, V), "gather", "fixed indices"),
    ("pad pairs", lambda: X.pad([1, 2]), "pad", "(before, after)"),
    ("pad count", lambda: X.pad([(1, 1)]), "pad", "each of 2 axes"),
    ("pad negative", lambda: X.pad([(-1, 0), (0, 0)]), "pad", "(before, after)"),
    ("pad mode", lambda: X.pad([(1, 1), (0, 0)], "wrap"), "pad", "mode 'wrap' is unknown; choose one: constant"),
    ("pad reflect", lambda: X.pad([(2, 0), (0, 0)], "reflect"), "pad", "cannot be reflected by 2"),
    ("crop all", lambda: af.crop(IMAGE, 4, 4, 0, 0), "crop", "cropping leaves nothing of 8 x 8|[1, 4, 8, 8]"),
    ("index range", lambda: X[2], "getitem", "index 2 is out of range for axis 0 of 2"),
    ("index too many", lambda: X[0, 0, 0], "getitem", "more axes than [2, 3]"),
    ("index empty", lambda: X[1:1], "getitem", "selects nothing"),
    ("index step", lambda: X[::0], "getitem", "the step must not be zero"),
    ("index float", lambda: X[0.5], "getitem", "whole number"),
    ("index text", lambda: X["a"], "getitem", "whole number"),
    ("index tensor", lambda: X[X > 0], "getitem", "whole number"),
    ("index dots", lambda: X[..., ...], "getitem", "more axes"),
    # Space.
    ("pool too large", lambda: IMAGE.max_pool(9), "max_pool", "window of 9 does not fit|[1, 4, 8, 8]"),
    ("pool padding", lambda: IMAGE.avg_pool(2, pad=2), "avg_pool", "not smaller than the window"),
    ("pool rank", lambda: CUBE.max_pool(2), "max_pool", "rank 4"),
    ("pool zero", lambda: IMAGE.max_pool(0), "max_pool", "at least 1"),
    ("pool float", lambda: IMAGE.max_pool(2.0), "max_pool", "whole number"),
    ("upsample by half", lambda: IMAGE.upsample(0.5), "upsample", "whole number"),
    ("resize to zero", lambda: af.resize_bilinear(IMAGE, 0, 4), "resize_bilinear", "at least 1"),
    ("shuffle", lambda: af.pixel_shuffle(IMAGE, 3), "pixel_shuffle", "4 are not divisible by 3 x 3"),
    ("unshuffle", lambda: af.pixel_unshuffle(IMAGE, 3), "pixel_unshuffle", "not both divisible by 3"),
    ("depth to space", lambda: af.depth_to_space(IMAGE, 3), "depth_to_space", "not divisible"),
    ("space to depth", lambda: af.space_to_depth(CUBE), "space_to_depth", "rank 4"),
    ("space to batch", lambda: af.space_to_batch(IMAGE, 3, 2), "space_to_batch", "not divisible by 3 and 2"),
    ("batch to space", lambda: af.batch_to_space(BATCH, 2, 2), "batch_to_space", "batch 2 is not divisible"),
    ("transform", lambda: af.affine(IMAGE, w(1, 5), 4, 4), "affine", "must be [1, 6]"),
    # Native layers.
    ("K and V", lambda: af.sdpa(Q, K, Q), "sdpa", "K and V must share a shape|[1, 2, 6, 8]"),
    ("sdpa batch", lambda: af.sdpa(*[af.input((2, 2, 4, 8))] * 3), "sdpa", "batch is 2"),
    ("sdpa heads", lambda: af.sdpa(af.input((1, 3, 4, 8)), K, K), "sdpa", "heads and features must agree"),
    ("sdpa rank", lambda: af.sdpa(X, X, X), "sdpa", "q must have rank 4"),
    ("mask plane", lambda: af.sdpa(Q, K, K, attn_mask=w(1, 2, 4, 6)), "sdpa", "one plane [1, 1, 4, 6]"),
    ("mask flat", lambda: af.sdpa(Q, K, K, attn_mask=w(4, 6)), "sdpa", "one plane"),
    ("mask of bool", lambda: af.sdpa(Q, Q, Q, attn_mask=af.input((1, 1, 4, 4)) > 0), "sdpa", "not bool"),
    ("NaN scale", lambda: af.sdpa(Q, K, K, math.nan), "sdpa", "scale is NaN"),
    ("topk of too many", lambda: af.topk(X, 4), "topk", "k is 4, but a row has only 3 elements"),
    ("sort rank", lambda: af.sort(CUBE), "sort", "rows [C, W]"),
    ("cross product", lambda: af.cross_product(V, V), "cross_product", "exactly three"),
    ("template", lambda: af.cross_correlation(X, w(3, 3)), "cross_correlation", "larger than the map [2, 3]"),
    ("disparity", lambda: af.cost_volume(V, w(4), 1), "cost_volume", "plus the range 1"),
    ("points", lambda: af.fps(CUBE, 1), "fps", "[N, 3], not [2, 3, 4]"),
    ("too many points", lambda: af.fps(POINTS, 6), "fps", "k is 6, but there are only 5 points"),
    ("negative radius", lambda: af.radius_search(POINTS, POINTS, -1), "radius_search", "zero or more"),
    (
        "dimension",
        lambda: af.minmax_norm(IMAGE, "Depth"),
        "minmax_norm",
        "dimension 'Depth' is unknown; choose one: Width",
    ),
    ("view", lambda: af.input_view(X, 4, 3), "input_view", "3 elements from 4 do not fit 6"),
    ("dynamic slice", lambda: af.dynamic_slice(X, 5), "dynamic_slice", "do not fit 6"),
    (
        "scaled op",
        lambda: af.scaled_elementwise(X, X, "Sub"),
        "scaled_elementwise",
        "op 'Sub' is unknown; choose one: Add",
    ),
    ("scaled shapes", lambda: af.scaled_elementwise(X, V), "scaled_elementwise", "one shape, not [2, 3] and [4]"),
    # Ops that no engine has, and blocks.
    ("dropout rate", lambda: af.dropout(X, 1.0), "dropout", "rate is 1; it must be at least 0 and below 1"),
    ("random bounds", lambda: af.random_uniform((2,), 1, 0), "random_uniform", "low 1 is above high 0"),
    ("one_hot depth", lambda: af.one_hot(X, 0), "one_hot", "at least 1"),
    ("band of a vector", lambda: af.band_part(V, 0, 0), "band_part", "matrices"),
    ("lengths", lambda: af.reverse_sequence(X, [1]), "reverse_sequence", "one length per sequence (2)"),
    ("length too long", lambda: af.reverse_sequence(X, [1, 4]), "reverse_sequence", "0 to 3"),
    ("one axis", lambda: af.reverse_sequence(X, [1, 1], 0, 0), "reverse_sequence", "on one axis"),
    ("scatter shape", lambda: af.scatter(X, [0], w(2, 3)), "scatter", "must be [1, 3]"),
    ("scatter range", lambda: af.scatter(X, [2], w(1, 3)), "scatter", "0 to 1"),
    ("scatter twice", lambda: af.scatter(X, [0, 0], w(2, 3)), "scatter", "set twice"),
    (
        "scatter mode",
        lambda: af.scatter(X, [0], w(1, 3), mode="mul"),
        "scatter",
        "mode 'mul' is unknown; choose one: set, add",
    ),
    ("lstm gates", lambda: af.lstm(CUBE, w(9, 4), w(9, 3), w(9)), "lstm", "i f g o"),
    ("gru bias", lambda: af.gru(CUBE, w(9, 4), w(9, 3), w(8)), "gru", "b of shape [8]"),
    ("rnn state", lambda: af.rnn(CUBE, w(3, 4), w(3, 3), w(3), w(1, 3)), "rnn", "must be [3, 3]"),
    ("rnn rank", lambda: af.rnn(X, w(3, 3), w(3, 3), w(3)), "rnn", "rank 3"),
    ("heads", lambda: af.mha(X, *[w(3, 3), w(3)] * 4, 2), "mha", "3 features do not divide into 2 heads"),
    ("mha rank", lambda: af.mha(CUBE, *[w(4, 4), w(4)] * 4, 2), "mha", "[S, D], not [2, 3, 4]"),
    ("mha of None", lambda: af.mha(None, *[w(3, 3), w(3)] * 4, 1), "mha", "NoneType"),
    ("context", lambda: af.cross_attention(X, CUBE, *[w(3, 3)] * 4, 1), "cross_attention", "[T, Dc]"),
    ("odd rope", lambda: af.rope(X, w(2, 3), w(2, 3)), "rope", "must be even"),
    ("odd geglu", lambda: af.geglu(X, w(3, 3), w(3)), "split", "does not divide into 2"),
    ("group_norm_train", lambda: af.group_norm_train(IMAGE, V, V, 3), "group_norm_train", "not divisible by 3"),
    # Foreign objects in the place of a tensor.
    ("conv of None", lambda: af.conv(None, w(1, 1, 1, 1)), "conv", "NoneType, not a graph tensor|[1, 1, 1, 1]"),
    ("conv of an array", lambda: af.conv(w(1, 1, 1, 1), w(1, 1, 1, 1)), "conv", "ndarray, not a graph tensor"),
    ("topk of a list", lambda: af.topk([[1.0, 2.0]], 1), "topk", "list, not a graph tensor"),
    ("gather of text", lambda: af.gather("abc", [0]), "gather", "cannot take these arguments"),
    ("split of a record", lambda: af.split({}, 2), "split", "cannot take these arguments"),
]


@pytest.mark.parametrize(("build", "op", "words"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_refused_at_the_line_that_builds_it(build, op, words):
    with pytest.raises(af.GraphError) as caught:
        build()
    message = str(caught.value)
    found = re.match(rf"{op} at test_graph_guards\.py:(\d+): ", message)
    assert found, message
    first = build.__code__.co_firstlineno
    assert first <= int(found[1]) <= first + 4, message
    for word in words.split("|"):
        assert word in message
    assert "\n" not in message


def test_enough_cases():
    assert len({row[0] for row in CASES}) == len(CASES) >= 60


def test_every_refusal_with_operands_shows_their_shapes():
    for name, build, _, _ in CASES:
        if build.__code__.co_names[:1] not in (("X",), ("CUBE",), ("IMAGE",)):
            continue
        with pytest.raises(af.GraphError) as caught:
            build()
        assert re.search(r"\[\d+(, \d+)*\]", str(caught.value)), name


def test_a_call_that_does_not_fit_stays_a_type_error():
    with pytest.raises(TypeError, match="missing"):
        af.conv()
    with pytest.raises(TypeError, match="unexpected"):
        X.relu(inplace=True)


def test_a_cause_is_kept():
    with pytest.raises(af.GraphError) as caught:
        CUBE.transpose(1)
    assert isinstance(caught.value.__cause__, TypeError)


# Tensors where values are expected.


@pytest.mark.parametrize(
    "use",
    [
        lambda: bool(X),
        lambda: X if X > 0 else V,
        lambda: X in [V],
        lambda: 3.0 in X,
        lambda: float(X),
        lambda: np.asarray(X),
        lambda: np.array([X, X]),
        lambda: np.add(X, 1.0),
        lambda: np.sqrt(X),
        lambda: np.sum(X),
        lambda: np.concatenate([X, X]),
        lambda: np.matmul(X, w(3, 2)),
        lambda: np.testing.assert_allclose(X, 1.0),
    ],
)
def test_no_value_yet(use):
    with pytest.raises(af.GraphError, match=r"test_graph_guards\.py:\d+"):
        use()


# Graphs, feeds and files.


@pytest.mark.parametrize("outputs", [[], (), None, 5, "abc", [None], ["x"], [X, 3], X, {"a": X}, [w(2)]])
def test_no_graph(outputs):
    with pytest.raises(
        af.GraphError,
        match=r"^Graph: (at least one output is needed|expected a list of tensors|outputs must be tensors)",
    ):
        af.Graph(outputs)


@pytest.mark.parametrize("out", [None, 5, "abc", [], [None]])
def test_nothing_to_evaluate(out):
    with pytest.raises(af.GraphError):
        af.evaluate(out)


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ([], "1 inputs, but 0 values"),
        ([w(2, 3), w(2, 3)], "1 inputs, but 2 values"),
        ([w(3, 2)], "shape [3, 2]"),
        ([["a", "b"]], "not real numbers"),
        ([None], "not real numbers"),
        ([np.ones((2, 3), complex)], "not real numbers"),
        ([[[1.0], [1.0, 2.0]]], "not real numbers"),
        ([Foreign()], "not real numbers"),
        ({"y": w(2, 3)}, "'y': not an input of the graph; choose one: x"),
        ({V: w(4)}, "<input fp16[4]>: not an input of the graph"),
        ({}, "no value was passed"),
    ],
)
def test_wrong_feeds(feeds, words):
    x = af.input((2, 3), name="x")
    with pytest.raises(af.GraphError, match=re.escape(words)):
        af.evaluate(x.relu(), feeds)


def document():
    x = af.input((1, 2, 4, 4), name="x")
    return af.conv(x, w(2, 2, 3, 3)).transpose([0, 2, 3, 1]).clip(0.0, 6.0).sum(1).graph().to_json()


def test_the_document_itself_is_fine():
    assert len(af.Graph.from_json(document())) == 6


def change(path, value):
    def apply(record):
        *steps, last = path
        for step in steps:
            record = record[step]
        if value is KeyError:
            del record[last]
        else:
            record[last] = value

    return apply


KEY = next(iter(document()["weights"]))
CYCLE: list = []
CYCLE.append(CYCLE)
DAMAGE = [
    (change(["aneforge_graph"], 99), "format 1 (found 99)"),
    (change(["aneforge_graph"], KeyError), "format 1"),
    (change(["nodes"], KeyError), "'nodes' and 'outputs' must be lists"),
    (change(["nodes"], {"a": 1}), "'nodes' and 'outputs' must be lists"),
    (change(["outputs"], KeyError), "'nodes' and 'outputs' must be lists"),
    (change(["outputs"], []), "at least one output"),
    (change(["outputs"], [6]), "are not all among the 6 nodes"),
    (change(["outputs"], [-1]), "are not all among the 6 nodes"),
    (change(["outputs"], ["x"]), "are not all among the 6 nodes"),
    (change(["outputs"], [True]), "are not all among the 6 nodes"),
    (change(["nodes", 2], "conv"), "node 2: not a record"),
    (change(["nodes", 2], None), "node 2: not a record"),
    (change(["nodes", 2, "op"], "convv"), "'convv': not a graph operation; nearest: conv"),
    (change(["nodes", 2, "op"], 7), "node 2: not a record with an 'op'"),
    (change(["nodes", 2, "inputs"], [0, 2]), "must all be earlier nodes"),
    (change(["nodes", 2, "inputs"], [0, 5]), "must all be earlier nodes"),
    (change(["nodes", 2, "inputs"], [0, -1]), "must all be earlier nodes"),
    (change(["nodes", 2, "inputs"], ["0", 1]), "must all be earlier nodes"),
    (change(["nodes", 2, "inputs"], None), "must all be earlier nodes"),
    (change(["nodes", 2, "inputs"], [0]), "takes x weight bias?, but got 1 operands"),
    (change(["nodes", 2, "inputs"], [0, 1, 1, 1]), "but got 4 operands"),
    (change(["nodes", 2, "attrs", "stride"], KeyError), "expected ['stride', 'pad', 'dilation', 'groups']"),
    (change(["nodes", 2, "attrs", "color"], 1), "expected ['stride', 'pad', 'dilation', 'groups']"),
    (change(["nodes", 2, "attrs"], [1]), "expected ['stride', 'pad', 'dilation', 'groups']"),
    (change(["nodes", 2, "attrs", "stride"], [0, 0]), "stride 0"),
    (change(["nodes", 2, "attrs", "stride"], "ab"), "node 2 (conv)"),
    (change(["nodes", 2, "attrs", "stride"], [1]), "node 2 (conv)"),
    (change(["nodes", 2, "attrs", "stride"], None), "node 2 (conv)"),
    (change(["nodes", 2, "attrs", "stride"], {}), "node 2 (conv)"),
    (change(["nodes", 2, "attrs", "stride"], CYCLE), "node 2 (conv)"),
    (change(["nodes", 2, "attrs", "groups"], 0), "node 2 (conv)"),
    (change(["nodes", 2, "attrs", "pad"], [-9, 0, 0, 0]), "node 2 (conv)"),
    (change(["nodes", 2, "shape"], [1, 2, 3, 3]), "declares shape [1, 2, 3, 3], but its operands give [1, 2, 2, 2]"),
    (change(["nodes", 2, "name"], ["a"]), "name ['a'] must be text"),
    (change(["nodes", 2, "weight"], KEY), "cannot have a weight; only constants and parameters do"),
    (change(["nodes", 1, "weight"], KeyError), "the weight is missing; a constant or parameter needs one"),
    (change(["nodes", 1, "weight"], "0123"), "weight 0123 is missing from the file"),
    (change(["nodes", 1, "weight"], ["0123"]), "is missing from the file"),
    (change(["nodes", 1, "shape"], [2, 2, 9, 1]), "declares shape [2, 2, 9, 1]"),
    (change(["nodes", 3, "attrs", "perm"], [0, 1, 1, 2]), "each of 4 axes once"),
    (change(["nodes", 3, "attrs", "perm"], [0, 1, 2, 9]), "each of 4 axes once"),
    (change(["nodes", 4, "attrs", "lo"], math.nan), "NaN"),
    (change(["nodes", 5, "attrs", "axes"], [9]), "axis 9 is out of range for rank 4"),
    (change(["nodes", 5, "attrs", "axes"], ["a"]), "axis 'a' is out of range"),
    (change(["nodes", 5, "attrs", "axes"], 3), "node 5 (sum)"),
    (change(["nodes", 0, "attrs", "dtype"], "fp64"), "type 'fp64' is unknown; choose one: fp16"),
    (change(["nodes", 0, "attrs", "shape"], [1, 2, 0, 4]), "an axis of 0"),
    (change(["nodes", 0, "attrs", "shape"], [1, 2, -4, 4]), "an axis of -4"),
    (change(["weights"], [1]), "expected a record by key"),
    (change(["weights"], KeyError), "is missing from the file"),
    (change(["weights", KEY], None), "cannot be read"),
    (change(["weights", KEY, "fp16"], "!!!"), "cannot be read"),
    (change(["weights", KEY, "fp16"], "AAAA"), "cannot be read"),
    (change(["weights", KEY, "shape"], [3, 3]), "cannot be read"),
    (change(["weights", KEY, "shape"], "abc"), "cannot be read"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE, ids=range(len(DAMAGE)))
def test_damaged_documents(damage, words):
    record = copy.deepcopy(document())
    damage(record)
    with pytest.raises(af.GraphError) as caught:
        af.Graph.from_json(record)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [-1, 10**30, 1.5, "a", None, [], [9], [0, 0], [[1, 2]], {}], ids=str)
def test_any_attribute_damaged_in_any_op_is_refused_or_read(value):
    """Nothing but this package's own error comes out of a document, whatever attribute was changed."""
    for case in {each.op: each for each in CASES_BY_OP}.values():
        text = json.dumps(case.build(*[af.input(array.shape) for array in case.arrays]).graph().to_json())
        for number, node in enumerate(json.loads(text)["nodes"]):
            for name in node.get("attrs", {}):
                record = json.loads(text)
                record["nodes"][number]["attrs"][name] = value
                del record["nodes"][number]["shape"]
                with contextlib.suppress(af.GraphError):
                    af.Graph.from_json(record)


@pytest.mark.parametrize("record", [None, [], "graph", 5, {}, {"aneforge_graph": 1}])
def test_no_document(record):
    with pytest.raises(af.GraphError):
        af.Graph.from_json(record)


def test_structure_without_its_weights():
    structure = af.Graph.from_json(document()).to_json(weights=False)
    with pytest.raises(af.GraphError, match="is missing from the file"):
        af.Graph.from_json(structure)
    held = {KEY: w(2, 2, 3, 3)}
    assert len(af.Graph.from_json(structure, held)) == 6
    with pytest.raises(af.GraphError, match="NaN"):
        af.Graph.from_json(structure, {KEY: with_nan(2, 2, 3, 3)})
    with pytest.raises(af.GraphError, match="but its operands give"):
        af.Graph.from_json(structure, {KEY: w(2, 2, 1, 1)})


def test_damaged_files(tmp_path):
    good = tmp_path / "good.ane"
    af.Graph.from_json(document()).save(good)
    whole = good.read_bytes()
    path = tmp_path / "bad.ane"
    for data in (b"", b"PK", whole[:40], whole[: len(whole) // 2], whole[:-1], whole[-100:], b"\0" * 1000):
        path.write_bytes(data)
        with pytest.raises(af.GraphError, match=r"bad\.ane: not an aneforge graph file"):
            af.load_graph(path)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    path.write_bytes(bytes(flipped))
    with pytest.raises(af.GraphError):
        af.load_graph(path)


@pytest.mark.parametrize(
    "members",
    [
        {"other.json": b"{}"},
        {"graph.json": b"{"},
        {"graph.json": b"\xff\xfe"},
        {"graph.json": b"[" * 100_000},
        {"graph.json": b"[]"},
        {"graph.json": json.dumps(document()).encode(), "weights/a.npy": b""},
        {"graph.json": json.dumps(document()).encode(), "weights/a.npy": b"text"},
    ],
)
def test_archives_that_hold_no_graph(tmp_path, members):
    path = tmp_path / "bad.ane"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(af.GraphError):
        af.load_graph(path)


def test_no_file(tmp_path):
    for path in (tmp_path / "absent.ane", tmp_path, None, 3.5):
        with pytest.raises(af.AneforgeError, match=r"not an aneforge graph file|cannot be read|not a regular file"):
            af.load_graph(path)


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    target = tmp_path / "kept.ane"
    target.write_bytes(b"old")

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(af.AneforgeError, match="disk full"):
        af.Graph.from_json(document()).save(target)
    assert [each.name for each in tmp_path.iterdir()] == ["kept.ane"]
    assert target.read_bytes() == b"old"


# Size.


def test_a_million_nodes():
    """Built, ordered, printed in short, written down and freed, with no walk that recurses."""
    y = af.input((1, 8, 1, 8))
    for _ in range(1_000_000):
        y = y.relu()
    graph = y.graph()
    assert len(graph) == 1_000_001
    assert graph.nodes[0].op == "input"
    assert repr(graph) == "Graph(1000000 ops, 1 inputs -> <relu fp16[1, 8, 1, 8]>)"
    structure = graph.to_json(weights=False)
    assert structure["nodes"][-1] == {"op": "relu", "inputs": [999_999], "shape": [1, 8, 1, 8]}
    del structure, graph, y
