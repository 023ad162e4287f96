"""Types of the backend language: what is sound for each op, what is refused and how, traits and defaults."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_pass_texts_kit import spelled_out

from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.spec import OPS, STRUCTURAL, _specs, kinds_with, spec, spec_names, structural_names
from aneforge.engine.text import parse
from aneforge.engine.traits import Trait
from aneforge.engine.verify import problems, verify
from aneforge.graph.weights import intern_weight

CONV = "strides = [1, 1, 1], dilation_rates = [1, 1, 1], groups = 1, explicit_padding = [0, 0, 1, 1, 1, 1]"
KERNEL = f"{CONV}, kernel_sizes = [1, 3, 3]"
POOL = "ksize = [1, 2, 2], padding = [0, 0, 0, 0, 0, 0], stride = [1, 2, 2]"
PADS = "[[0, 0], [0, 0], [0, 0], [1, 2], [0, 0]]"
ARG = "axes = [4], kernel_size = [1, 4], stride_values = [1, 1], pad_values = [0, 0, 0, 0]"
CROP = 'sampling_method = "Linear", sampling_mode = "Default"'
GRID = f'coordinate_mode = "NonNormalized", background_value = 0.0, {CROP}'
SIZED = 'sampling_methods = "Linear", sampling_modes = "Default"'
TO_BYTES = 'scale = 0.5, zero_point = 0, to = "ui8"'
SUM = "!8x4x4 !8x4x4"

# kind: operand types, attributes, result type.
SOUND: dict[str, tuple[str, str, str]] = {
    **dict.fromkeys(("add", "sub", "mult", "div", "max", "min", "power"), ("!8x4x4 !8x1x1", "", "!8x4x4")),
    "scaled_elementwise": (SUM, 'mode = "Add", scale = 0.5', "!8x4x4"),
    **dict.fromkeys(("equal", "not_equal", "less_than", "less_than_equal"), ("!8x4x4 !8x1x1", "", "!8x4x4xi1")),
    **dict.fromkeys(("greater_than", "greater_than_equal"), ("!8x4x4 !8x1x1", "", "!8x4x4xi1")),
    **{
        f"{kind}_zero": ("!8x4x4", "", "!8x4x4xi1")
        for kind in (*("equal", "not_equal", "less_than", "less_than_equal", "greater_than", "greater_than_equal"),)
    },
    **dict.fromkeys(
        (
            *("abs", "square", "sqr", "ceil", "cos", "degamma", "dirac", "erf", "floor", "high_precision_sigmoid"),
            *("relu", "round_nearest", "sigmoid", "sign", "sin", "sqrt", "trunc", "tanh", "swish", "gelu", "r_sqrt"),
            *("invert", "log2", "exp2", "tensor_buffer_to_tensor", "tensor_to_tensor_buffer"),
        ),
        ("!8x4x4", "", "!8x4x4"),
    ),
    "clamped_relu": ("!8x4x4", "min_val = 0.0, max_val = 1.0", "!8x4x4"),
    "n_relu": ("!8x4x4", "max_val = 1.0", "!8x4x4"),
    "leaky_relu": ("!8x4x4 !8x1x1", "", "!8x4x4"),
    "elu": ("!8x4x4", "alpha = 1.0", "!8x4x4"),
    "gain_offset_control": ("!8x4x4 !8x1x1 !1x1x1", "", "!8x4x4"),
    "cast": ("!8x4x4xui8", 'to = "f16"', "!8x4x4"),
    "quant": ("!8x4x4", TO_BYTES, "!8x4x4xui8"),
    "dequant": ("!8x4x4xui8", "scale = 0.5, zero_point = 0", "!8x4x4"),
    "convolution": ("!8x4x4 !6x1x8x3x3 !6x1x1", KERNEL, "!6x4x4"),
    "deconvolution": ("!8x4x4 !8x1x6x3x3 !6x1x1", KERNEL, "!6x4x4"),
    "linear": ("!8x4x4 !6x1x4 !1x1x6", "", "!8x4x6"),
    "matmul": ("!8x3x4 !4x1x5 !1x1x5", "", "!8x3x5"),
    "sdpa": ("!6x2x4 !5x2x4 !5x2x3 !1x1x1 !6x1x5", "", "!6x2x3"),
    "average_pool": ("!8x4x4", POOL, "!8x2x2"),
    "max_pool": ("!8x4x4", POOL, "!8x2x2"),
    "l2norm_pool": ("!8x4x4", POOL, "!8x2x2"),
    **{f"reduce_{kind}": ("!8x4x4", "axes = [2, 4]", "!1x4x1") for kind in ("avg", "max", "min", "sum")},
    "arg_min_max": ("!8x4x4", f'{ARG}, mode = "SpatialArgMax"', "!8x4x1"),
    "global_arg_min_max": ("!8x4x4", 'axis = 2, mode = "Min"', "!1x4x4"),
    "softmax": ("!8x4x4", "axes = [2]", "!8x4x4"),
    "layer_norm": ("!8x4x4 !8x1x1 !8x1x1", "axes = [2, 3, 4], epsilon = 0.0, groups = 2", "!8x4x4"),
    "instance_norm": ("!8x4x4 !8x1x1 !8x1x1", "axes = [3, 4], epsilon = 0.0", "!8x4x4"),
    "batch_norm": ("!8x4x4 !8x1x1 !8x1x1 !8x1x1 !8x1x1", "epsilon = 0.0", "!8x4x4"),
    "reshape": ("!8x4x4xi1", "shape = [1, 1, 4, 8, 4]", "!4x8x4xi1"),
    "flatten": ("!8x4x4", "", "!128x1x1"),
    "unflatten": ("!128x1x1", "destination_size = [8, 4, 4]", "!8x4x4"),
    "broadcast": ("!8x1x4", "shape = [1, 1, 8, 4, 4]", "!8x4x4"),
    "transpose": ("!8x4x3xui8", "transpose_list = [[2, 4], [4, 2]]", "!3x4x8xui8"),
    "concat": ("!8x4x4xi1 !2x4x4xi1", "axis = 2", "!10x4x4xi1"),
    "tile": ("!8x4x4", "multiples = [1, 1, 2, 1, 1]", "!16x4x4"),
    "padding": ("!8x4x4", f'padding_modes = "Zero", padding_sizes = {PADS}, background_value = 0.0', "!8x7x4"),
    "input_view": ("!8x4x4", "dimension = 4, offset = 3, size = 2, step = -2", "!8x4x2"),
    "gather_nd": ("!8x4x4", "axes = [2], indices = [7, 0, -1]", "!3x4x4"),
    "pixel_shuffle": ("!8x4x4", "factors = [1, 2, 2]", "!2x8x8"),
    "channel_to_space": ("!8x4x4", "factors = [1, 2, 2]", "!2x8x8"),
    "pixel_unshuffle": ("!8x4x4", "factors = [1, 2, 2]", "!32x2x2"),
    "space_to_channel": ("!8x4x4", "factors = [1, 2, 2]", "!32x2x2"),
    "space_to_batch": ("!8x4x4", "factors = [1, 2, 2]", "!4x1x8x2x2"),
    "batch_to_space": ("!4x1x8x2x2", "factors = [1, 2, 2]", "!8x4x4"),
    "resize": ("!8x4x4", f"height = 9, width = 2, {SIZED}", "!8x9x2"),
    "crop_resize": ("!8x4x4 !3x1x2", f"output_dims = [5, 6], crop_dims = [2, 2], {CROP}", "!3x1x8x5x6"),
    "resample": ("!8x4x4 !2x5x6", GRID, "!8x5x6"),
    "state": ("", 'name = "s"', "!8x4x4"),
    "ring_buffer_reader": ("!8x4x4", "offset = 3, size = 2", "!8x4x2"),
    "ring_buffer_writer": ("!8x4x2 !8x4x4", "offset = 3", "!8x4x4"),
    "live_in": ("", 'name = "i"', "!8x4x4xui8"),
    "const_in": ("", 'weight = "k"', "!8x4x4"),
    "select": ("!8x4x4xi1 !8x1x1 !1x4x4", "", "!8x4x4"),
    "unit": ("!8x4x4", 'type = "Sort", params = "{}"', "!8x4x4"),
}


def text_of(kind, operands, attributes, result, name="op"):
    """A program with one op of interest."""
    types = operands.split()
    lines = [f'%{i} = "anec.live_in"() {{name = "x{i}"}} : () -> {type_}' for i, type_ in enumerate(types)]
    read = ", ".join(f"%{i}" for i in range(len(types)))
    lines.append(f'%y = "anec.{kind}"({read}) {{{attributes}}} : ({", ".join(types)}) -> {result} loc("{name}")')
    lines.append(f'"anec.live_out"(%y) {{names = ["y"]}} : ({result}) -> ()')
    return spelled_out("\n".join(lines))


def said(text, weights=None):
    module = parse(text)
    module.weights = {key: intern_weight(np.asarray(values, np.float64)) for key, values in (weights or {}).items()}
    return problems(module)


@pytest.mark.parametrize("kind", SOUND)
def test_sound_code_of_every_op_verifies_and_reads_back(kind):
    module = parse(text_of(kind, *SOUND[kind]))
    verify(module)
    assert str(verify(parse(str(module)))) == str(module)


def test_every_op_has_a_type_rule_and_a_sound_sample():
    names = {name.removeprefix("anec.") for name in (*spec_names(), *structural_names())}
    assert set(SOUND) | {"live_out"} == names
    for name in names:
        assert callable(spec(f"anec.{name}").type_rule)


@pytest.mark.parametrize("kind", [kind for kind in SOUND if kind not in ("state", "live_in", "const_in", "unit")])
def test_another_result_is_refused(kind):
    """Every rule settles the shape and the element type of the result."""
    operands, attributes, result = SOUND[kind]
    expected = re.escape(spelled_out(result))
    for wrong in ("!3x9x9", result.removesuffix("xi1").removesuffix("xui8") + "xf32"):
        (message,) = said(text_of(kind, operands, attributes, wrong))
        assert re.search(
            rf"op \d \(anec\.{kind}\) of 'op': result is {spelled_out(wrong)}; expected {expected}", message
        )


REFUSED = [
    # The examples of the design.
    ("relu", "!8x4x4", "", "!3x9x9", "result is tensor<1x1x3x9x9xf16>; expected tensor<1x1x8x4x4xf16>"),
    ("add", SUM, "", "!8x4x4xi1", "result is tensor<1x1x8x4x4xi1>; expected tensor<1x1x8x4x4xf16>"),
    # Arithmetic and formats.
    ("add", "!8x4x4 !8x3x4", "", "!8x4x4", "operands are 4 and 3 along H; expected equal or 1"),
    ("add", "!8x4x4 !8x4x4xi1", "", "!8x4x4", "operand 1 is i1; expected f16"),
    ("relu", "!8x4x4xui8", "", "!8x4x4", "operand 0 is ui8; expected f16"),
    ("equal", "!8x4x4 !8x4x4", "", "!8x4x4", "result is tensor<1x1x8x4x4xf16>; expected tensor<1x1x8x4x4xi1>"),
    ("equal_zero", "!8x4x4xsi8", "", "!8x4x4xi1", "operand 0 is si8; expected f16 or i1"),
    ("scaled_elementwise", SUM, 'mode = "Sub", scale = 1.0', "!8x4x4", "mode = 'Sub'; expected Add, Mult, Min, Max"),
    ("leaky_relu", "!8x1x4 !8x4x1", "", "!8x4x4",
     "operand 1 is 1x1x8x4x1; expected a shape that stretches to 1x1x8x1x4"),
    ("leaky_relu", "!8x4x4 !8x1x1xui8", "", "!8x4x4", "operand 1 is ui8; expected f16"),
    ("select", "!8x4x4 !8x4x4 !8x4x4", "", "!8x4x4", "the condition is f16; expected i1"),
    ("select", "!8x4x4xi1 !8x4x4 !8x4x4xui8", "", "!8x4x4", "selects between f16 and ui8; expected one type"),
    ("cast", "!8x4x4", 'to = "f64"', "!8x4x4", "to = 'f64'; expected one of f16, i1"),
    ("quant", "!8x4x4", TO_BYTES.replace("ui8", "f16"), "!8x4x4", "to = 'f16'; expected ui8 or si8"),
    ("quant", "!8x4x4xui8", TO_BYTES, "!8x4x4xui8", "operand 0 is ui8; expected f16"),
    ("dequant", "!8x4x4xi1", "scale = 0.5, zero_point = 0", "!8x4x4", "operand 0 is i1; expected ui8 or si8 or f16"),
    # Convolutions.
    ("convolution", "!8x4x4 !6x1x8x3x3", f"{CONV}, kernel_sizes = [1, 3, 1]", "!6x4x4",
     "kernel_sizes = [1, 3, 1]; the kernel is [1, 3, 3] along D, H and W"),
    ("convolution", "!8x4x4 !6x1x8x3x3", KERNEL.replace("groups = 1", "groups = 3"), "!6x4x4",
     "groups = 3 does not divide 8 input and 6 output channels"),
    ("convolution", "!8x4x4 !6x1x8x3x3", KERNEL.replace("groups = 1", "groups = 2"), "!6x4x4",
     "input has 8 channels; the kernel takes 8 in each of 2 groups"),
    ("convolution", "!8x4x4 !6x1x8x3x3", KERNEL.replace("strides = [1, 1, 1]", "strides = [1, 0, 1]"), "!6x4x4",
     "strides = [1, 0, 1]; expected 1 or more along each axis"),
    ("convolution", "!8x4x4 !6x1x8x3x3", KERNEL.replace("rates = [1, 1, 1]", "rates = [1, 1, 0]"), "!6x4x4",
     "dilation_rates = [1, 1, 0]; expected 1 or more along each axis"),
    ("convolution", "!8x4x4 !6x1x8x3x3", KERNEL.replace("[0, 0, 1", "[0, 0, -1"), "!6x2x4",
     "explicit_padding = [0, 0, -1, 1, 1, 1]; expected 0 or more on each side"),
    ("convolution", "!8x1x4 !6x1x8x5x3", f"{CONV}, kernel_sizes = [1, 5, 3]", "!6x1x4",
     "the window spans 5 elements along H; the padded input has 3"),
    ("convolution", "!8x4x4xi1 !6x1x8x3x3", KERNEL, "!6x4x4", "the input is i1; expected f16 or ui8 or si8"),
    ("convolution", "!8x4x4 !6x1x8x3x3xui4", KERNEL, "!6x4x4", "the kernel is ui4; expected f16 or ui8 or si8"),
    ("convolution", "!8x4x4 !6x1x8x3x3", f'{KERNEL}, kernel_palettized_LUT = "t"', "!6x4x4",
     "the kernel is f16; indices into a table are unsigned integers (ui1 to ui8)"),
    ("convolution", "!8x4x4 !6x1x8x3x3", f'{KERNEL}, kernel_scale = "s"', "!6x4x4",
     "the kernel is f16; a scale or zero point belongs to codes (ui8, si8, ui4 or si4)"),
    ("convolution", "!8x4x4 !6x1x8x3x3 !6x1x1xui8", KERNEL, "!6x4x4", "the bias is ui8; expected f16"),
    ("convolution", "!8x4x4 !6x1x8x3x3 !8x1x1", KERNEL, "!6x4x4",
     "the bias is 1x1x8x1x1; expected a shape that stretches to 1x1x6x4x4"),
    ("deconvolution", "!8x4x4 !6x1x8x3x3", KERNEL, "!8x4x4", "input has 8 channels; the kernel is for 6 of them"),
    ("deconvolution", "!8x4x4 !8x1x6x3x3", KERNEL.replace("[0, 0, 1, 1", "[0, 0, 3, 3"), "!6x4x4",
     "the padding cuts all 6 elements along H"),
    # Products.
    ("linear", "!8x4x4 !6x2x4", "", "!8x4x6", "the kernel is 1x1x6x2x4; expected outputs on C and inputs on W"),
    ("linear", "!8x4x4 !6x1x5", "", "!8x4x6", "the input is 4 wide; the kernel takes 5"),
    ("matmul", "!8x1x4 !5x1x4", "", "!8x1x4", "a has 4 columns, b has 5 rows; expected the same number"),
    ("matmul", "!8x1x4 !4x1x5", "transpose_lhs", "!8x1x5", "a has 8 columns, b has 4 rows; expected the same number"),
    ("matmul", "!1x2x8x1x4 !4x1x5", "", "!8x1x5", "a has depth 2; a product takes depth 1"),
    ("matmul", "!8x2x4 !4x3x5", "", "!8x3x5", "operands are 2 and 3 along H; expected equal or 1"),
    ("matmul", "!8x1x4 !4x1x5xsi8", "", "!8x1x5", "b is si8; expected f16"),
    ("matmul", "!8x1x4 !4x1x5 !1x1x4", "", "!8x1x5", "the bias is 1x1x1x1x4; expected a shape that stretches to"),
    ("sdpa", "!6x2x4 !5x2x3 !5x2x3 !1x1x1", "", "!6x2x3", "q has 4 features, k has 3; expected the same number"),
    ("sdpa", "!6x2x4 !5x2x4 !6x2x3 !1x1x1", "", "!6x2x3", "k has 5 places, v has 6; expected the same number"),
    ("sdpa", "!6x2x4 !5x2x4 !5x2x3 !1x1x2", "", "!6x2x3", "the scale has 2 elements; expected 1"),
    ("sdpa", "!6x2x4 !5x2x4 !5x2x3 !1x1x1 !6x1x4", "", "!6x2x3",
     "the mask is 1x1x6x1x4; expected a shape that stretches to 1x1x6x2x5"),
    # Pools, reductions and normalisations.
    ("max_pool", "!8x1x4", POOL, "!8x1x2", "the window spans 2 elements along H; the padded input has 1"),
    ("max_pool", "!8x4x4", POOL.replace("stride = [1, 2", "stride = [1, 0"), "!8x2x2",
     "stride = [1, 0, 2]; expected 1"),
    ("max_pool", "!8x4x4", POOL.replace("[0, 0, 0", "[0, 0, -1"), "!8x2x2",
     "padding = [0, 0, -1, 0, 0, 0]; expected 0"),
    ("reduce_sum", "!8x4x4", "axes = [2, 2]", "!1x4x4", "axes = [2, 2] names an axis twice"),
    ("reduce_sum", "!8x4x4", "axes = [5]", "!8x4x4",
     "axes = [5]: an axis lies outside NDCHW; expected positions 0 to 4"),
    ("reduce_sum", "!8x4x4", "axes = []", "!8x4x4", "axes is empty; expected one axis or more"),
    ("softmax", "!8x4x4", "axes = [-1]", "!8x4x4", "axes = [-1]: an axis lies outside NDCHW"),
    ("layer_norm", "!8x4x4", "axes = [2], epsilon = 0.0, groups = 3", "!8x4x4",
     "groups = 3 does not divide 8 channels"),
    ("layer_norm", "!1x2x8x4x4", "axes = [2], epsilon = 0.0, groups = 2", "!1x2x8x4x4",
     "groups = 2 on depth 2; groups take depth 1"),
    ("arg_min_max", "!8x4x4", f'{ARG}, mode = "Max"', "!8x4x1", "mode = 'Max'; expected ChannelArgMax, ChannelArgMin"),
    ("arg_min_max", "!8x4x4", f'{ARG.replace("[1, 4]", "[1, 5]")}, mode = "SpatialArgMax"', "!8x4x1",
     "the window spans 5 elements along W; the padded input has 4"),
    ("arg_min_max", "!8x4x4", f'{ARG.replace("[1, 4]", "[0, 4]")}, mode = "SpatialArgMax"', "!8x4x1",
     "kernel_size or stride_values is below 1"),
    ("arg_min_max", "!8x4x4", f'{ARG.replace("[0, 0, 0", "[-1, 0, 0")}, mode = "SpatialArgMax"', "!8x4x1",
     "pad_values = [-1, 0, 0, 0]; expected 0 or more"),
    ("global_arg_min_max", "!8x4x4", 'axis = 2, mode = "ArgMax"', "!1x4x4", "mode = 'ArgMax'; expected Max or Min"),
    ("global_arg_min_max", "!8x4x4", 'axis = 7, mode = "Max"', "!1x4x4", "axis = [7]: an axis lies outside NDCHW"),
    # Movement.
    ("reshape", "!8x4x4", "shape = [1, 1, 8, 4, 5]", "!8x4x5", "shape 1x1x8x4x5 has 160 elements; the input has 128"),
    ("reshape", "!8x4x4", "shape = [1, 1, -8, -4, 4]", "!8x4x4", "shape = [1, 1, -8, -4, 4]; expected 1 or more"),
    ("broadcast", "!8x2x4", "shape = [1, 1, 8, 4, 4]", "!8x4x4",
     "the input is 1x1x8x2x4; expected a shape that stretches to 1x1x8x4x4"),
    ("transpose", "!8x4x4", "transpose_list = [[2, 3], [3, 4]]", "!4x4x4",
     "transpose_list is not a permutation: it fills axes [2, 3] from axes [3, 4]"),
    ("transpose", "!8x4x4", "transpose_list = [[3, 9], [9, 3]]", "!8x4x4",
     "result axes of transpose_list = [3, 9]: an axis"),
    ("transpose", "!8x4x4", "transpose_list = [[3, 4], [4, 4]]", "!8x4x4",
     "source axes of transpose_list = [4, 4] names an axis twice"),
    ("concat", "", "axis = 2", "!8x4x4", "has no operands; expected one or more"),
    ("concat", "!8x4x4 !8x4x4xi1", "axis = 2", "!16x4x4", "operand 1 is i1; operand 0 is f16"),
    ("concat", "!8x4x4 !8x3x4", "axis = 2", "!16x4x4", "operand 1 is 1x1x8x3x4; expected 1x1x8x4x4 up to C"),
    ("concat", "!8x4x4 !4x4x4", "axis = 2, interleave", "!12x4x4", "operand 1 is 1x1x4x4x4; expected 1x1x8x4x4"),
    ("concat", SUM, "axis = 5", "!16x4x4", "axis = [5]: an axis lies outside NDCHW"),
    ("tile", "!8x4x4", "multiples = [1, 1, 0, 1, 1]", "!8x4x4", "multiples = [1, 1, 0, 1, 1]; expected 1 or more"),
    ("padding", "!8x4x4", 'padding_modes = "Zero", padding_sizes = [[1, 1]], background_value = 0.0', "!8x4x4",
     "padding_sizes has 1 pairs; expected 5, one for each axis"),
    ("padding", "!8x4x4", f'padding_modes = "Zero", padding_sizes = {PADS.replace("1, 2", "-1, 2")}, '
     "background_value = 0.0", "!8x5x4", "padding_sizes has a negative size; expected 0 or more"),
    ("input_view", "!8x4x4", "dimension = 4, offset = 1, size = 4, step = 1", "!8x4x4",
     "reads elements 1 to 4 along W; the input has 4"),
    ("input_view", "!8x4x4", "dimension = 4, offset = 0, size = 2, step = -1", "!8x4x2",
     "reads elements 0 to -1 along W"),
    ("input_view", "!8x4x4", "dimension = 4, offset = 0, size = 0, step = 1", "!8x4x4",
     "size = 0; expected 1 or more"),
    ("input_view", "!8x4x4", "dimension = 4, offset = 0, size = 2, step = 0", "!8x4x2",
     "step = 0; expected another step"),
    ("input_view", "!8x4x4", "dimension = 6, offset = 0, size = 2, step = 1", "!8x4x2",
     "dimension = [6]: an axis lies"),
    ("gather_nd", "!8x4x4", "axes = [2], indices = [8]", "!1x4x4",
     "indices = [8]: one is out of range; the input has 8"),
    ("gather_nd", "!8x4x4", "axes = [2], indices = []", "!1x4x4", "indices is empty; expected one index or more"),
    ("gather_nd", "!8x4x4", "axes = [], indices = [0]", "!1x4x4", "axes is empty; expected one axis or more"),
    ("gather_nd", "!8x4x4", "axes = [2]", "!1x4x4",
     "anec.gather_nd: attribute 'indices' is missing and has no default"),
    ("gather_nd", "!8x4x4 !1x1x2", "axes = [2], indices = [0]", "!2x4x4",
     "has indices both as an attribute and as an operand"),
    ("gather_nd", "!8x4x4 !1x1x3", "axes = [2, 3]", "!1x1x4", "has 3 indices; expected 2 for each place"),
    ("gather_nd", "!8x4x4 !1x1x4", "axes = [2, 3]", "!1x1x4", "result has 4 elements; 2 places of this input are 8"),
    ("gather_nd", "!8x4x4 !1x1x2xi1", "axes = [2]", "!2x4x4", "the index operand is i1; expected f16 or ui8 or si8"),
    ("flatten", "!8x4x4", 'flatten_mode = "HWC"', "!128x1x1", "flatten_mode = 'HWC'; expected NCHW or NHWC"),
    ("unflatten", "!128x1x1", "destination_size = [8, 4, 5]", "!8x4x5",
     "destination_size 8x4x5 has 160 elements; an image of the input has 128"),
    ("pixel_shuffle", "!6x4x4", "factors = [1, 2, 2]", "!1x8x8",
     "the number of channels is 6; expected a multiple of 4"),
    ("space_to_channel", "!8x5x4", "factors = [1, 2, 2]", "!32x2x2", "the height is 5; expected a multiple of 2"),
    ("space_to_batch", "!8x4x5", "factors = [1, 2, 2]", "!4x1x8x2x2", "the width is 5; expected a multiple of 2"),
    ("batch_to_space", "!3x1x8x2x2", "factors = [1, 2, 2]", "!8x4x4", "the batch is 3; expected a multiple of 4"),
    ("pixel_shuffle", "!8x4x4", "factors = [1, 0, 2]", "!8x4x4", "factors = [1, 0, 2]; expected 1 or more"),
    ("ring_buffer_reader", "!8x4x4", "offset = 0, size = 5", "!8x4x5", "size = 5; the ring has 4 columns"),
    ("ring_buffer_writer", "!8x3x2 !8x4x4", "offset = 0", "!8x4x4", "writes tensor<1x1x8x3x2xf16>; the ring is"),
    # Sampling.
    ("resize", "!8x4x4", f"height = 0, width = 2, {SIZED}", "!8x1x2", "height 0, width 2; expected 1 or more"),
    ("crop_resize", "!8x4x4 !3x1x2", f"output_dims = [5, 6], crop_dims = [5, 2], {CROP}", "!3x1x8x5x6",
     "crop_dims = [5, 2]; the input has 4 along H"),
    ("crop_resize", "!8x4x4 !3x1x2", f"output_dims = [0, 6], crop_dims = [2, 2], {CROP}", "!3x1x8x5x6",
     "output_dims = [0, 6]; expected 1 or more"),
    ("crop_resize", "!8x4x4 !3x1x1", f"output_dims = [5, 6], crop_dims = [2, 2], {CROP}", "!3x1x8x5x6",
     "boxes are 1 wide; expected 2 or more"),
    ("resample", "!8x4x4 !3x5x6", GRID, "!8x5x6",
     "the grid is 1x1x3x5x6; expected batch 1, depth 1 and one or two channels"),
    # Native layers.
    ("unit", "!8x4x4", 'type = "Sort", params = "[]"', "!8x4x4", "params = '[]'; expected a JSON object"),
    ("unit", "!8x4x4", 'type = "Sort", params = "{"', "!8x4x4", "params = '{'; expected a JSON object"),
    ("unit", "!8x4x4xi1", 'type = "Sort", params = "{}"', "!8x4x4", "operand 0 is i1; expected f16"),
    ("unit", "!8x4x4", 'type = "Sort", params = "{}"', "!8x4x4xi1", "result is tensor<1x1x8x4x4xi1>; expected"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "operands", "attributes", "result", "message"), REFUSED)
def test_ill_typed_code_is_refused_by_name(kind, operands, attributes, result, message):
    place = len(operands.split())
    (found,) = said(text_of(kind, operands, attributes, result))
    assert found.startswith(f"op {place} (anec.{kind}) of 'op': ")
    assert message in found


def test_a_result_of_an_unknown_element_type():
    module = parse(text_of("relu", "!8x4x4", "", "!8x4x4"))
    module.ops[1].type = TensorType((1, 1, 8, 4, 4), "f64")
    assert "result tensor<1x1x8x4x4xf64> has an unknown element type; choose one: f16" in problems(module)[0]


@pytest.mark.parametrize(
    ("names", "message"),
    [('"y"', "has 1 names for 2 operands; expected the same number"), ('"y", "y"', "has a name twice")],
)
def test_the_names_of_the_results(names, message):
    text = f"""
        %x = "anec.live_in"() {{name = "x"}} : () -> !8x4x4
        "anec.live_out"(%x, %x) {{names = [{names}]}} : (!8x4x4, !8x4x4) -> ()
    """
    (found,) = said(spelled_out(text))
    assert message in found


STORED = """
    %x = "anec.live_in"() {name = "x"} : () -> !8x4x4
    %k = "anec.const_in"() {weight = "k"} : () -> !KIND
    %y = "anec.NAME"(%x, %k) {ATTRS} : (!8x4x4, !KIND) -> !RESULT
    "anec.live_out"(%y) {names = ["y"]} : (!RESULT) -> ()
"""
LINE = f"{CONV.replace('1, 1, 1, 1]', '0, 0, 0, 0]')}, kernel_sizes = [1, 1, 1]"


@pytest.mark.parametrize(
    ("name", "kind", "attributes", "result", "weights", "message"),
    [
        ("linear", "6x1x4xsi8", 'kernel_scale = "s"', "8x4x6", {"s": np.ones(6)}, None),
        ("linear", "6x1x4xsi8", 'kernel_scale = "s"', "8x4x6", {"s": np.ones(5)},
         "kernel_scale has 5 numbers; expected 1 or one for each of 6 outputs"),
        ("convolution", "6x1x8x1x1xsi8", f'{LINE}, kernel_scale = "s"', "6x4x4", {"s": np.ones((6, 8, 1, 1))}, None),
        ("convolution", "6x1x8x1x1xsi8", f'{LINE}, kernel_zero_point = "s"', "6x4x4", {"s": np.ones((6, 4, 1, 1))},
         "kernel_zero_point has 24 numbers; expected 1 or one for each of 6 outputs"),
        ("deconvolution", "8x1x3x1x1xsi8", f'{LINE.replace("groups = 1", "groups = 2")}, kernel_scale = "s"', "6x4x4",
         {"s": np.ones(5)}, "kernel_scale has 5 numbers; expected 1 or one for each of 6 outputs"),
        ("linear", "6x1x4xui2", 'kernel_lut = "s"', "8x4x6", {"s": np.ones(4)}, None),
        ("linear", "6x1x4xui2", 'kernel_lut = "s"', "8x4x6", {"s": np.ones(5)},
         "kernel_lut has 5 entries; ui2 names 4 at most"),
        ("linear", "6x1x4xsi8", 'kernel_scale = "gone"', "8x4x6", {}, "refers to weight 'gone'"),
    ],
)  # fmt: skip
def test_stored_constants_go_with_their_kernel(name, kind, attributes, result, weights, message):
    text = STORED.replace("KIND", kind).replace("NAME", name).replace("ATTRS", attributes).replace("RESULT", result)
    elements = int(np.prod([int(extent) for extent in re.findall(r"\d+", kind.rpartition("x")[0])]))
    found = said(spelled_out(text), {"k": np.zeros(elements), **weights})
    assert found == [] if message is None else message in found[0]


def test_a_constant_has_as_many_elements_as_its_type():
    (found,) = said(text_of("const_in", "", 'weight = "k"', "!8x4x4"), {"k": np.ones(127)})
    assert "weight 'k' has 127 elements; its type has 128" in found
    assert said(text_of("const_in", "", 'weight = "k"', "!8x4x4"), {"k": np.ones(128)}) == []


def test_equal_values_of_another_class_are_not_taken_for_sound():
    """The verifier remembers sound ops: one that differs in 1.0 for 1 alone must not pass as the same."""
    x = Op("anec.live_in", (), TensorType((1, 1, 8, 4, 4)), {"name": "x"})
    ops = [Op("anec.concat", [x], x.type, {"axis": axis}) for axis in (2, 2.0)]
    module = Module([x, *ops, Op("anec.live_out", ops, None, {"names": ("a", "b")})])
    assert problems(module) == ["op 2 (anec.concat): attribute axis = 2.0 is not of kind 'i'"]


def test_a_sound_op_is_found_again_and_an_unsound_one_named_each_time():
    x = Op("anec.live_in", (), TensorType((1, 1, 8, 4, 4)), {"name": "x"})
    ops = [Op("anec.relu", [x], TensorType((1, 1, 8, 4, width))) for width in (4, 5, 4, 5)]
    module = Module([x, *ops, Op("anec.live_out", ops, None, {"names": tuple("abcd")})])
    assert [text.partition(":")[0] for text in problems(module)] == ["op 2 (anec.relu)", "op 4 (anec.relu)"]


# Traits.

ZERO = {"equal_zero", "not_equal_zero", "less_than_zero", "less_than_equal_zero", "greater_than_zero",
        "greater_than_equal_zero"}  # fmt: skip
COMPARISONS = {"equal", "not_equal", "less_than", "less_than_equal", "greater_than", "greater_than_equal", *ZERO}
ACTIVATIONS = {
    *("ceil", "clamped_relu", "cos", "degamma", "dirac", "elu", "erf", "exp2", "floor", "gelu"),
    *("high_precision_sigmoid", "invert", "leaky_relu", "log2", "n_relu", "r_sqrt", "relu", "round_nearest"),
    *("sigmoid", "sign", "sin", "sqrt", "swish", "tanh", "trunc"),
}
MOVES = {
    *("reshape", "flatten", "unflatten", "broadcast", "transpose", "concat", "tile", "padding", "input_view"),
    *("gather_nd", "pixel_shuffle", "pixel_unshuffle", "channel_to_space", "space_to_channel", "space_to_batch"),
    *("batch_to_space", "ring_buffer_reader", "ring_buffer_writer", "tensor_buffer_to_tensor"),
    *("tensor_to_tensor_buffer", "select"),
}
TRAITS = {
    Trait.PORT: {"live_in", "const_in", "live_out"},
    Trait.INPUT: {"live_in", "state"},
    Trait.POINTWISE: {
        *("add", "sub", "mult", "div", "power", "max", "min", "scaled_elementwise", "abs", "square", "sqr"),
        *("gain_offset_control", "batch_norm", "cast", "quant", "dequant", "select"),
        *(COMPARISONS | ACTIVATIONS),
    },
    Trait.COMPARISON: COMPARISONS,
    Trait.ACTIVATION: ACTIVATIONS,
    Trait.IDEMPOTENT: {"relu", "abs", "sign", "floor", "ceil", "round_nearest", "trunc"},
    Trait.AFFINE: {"gain_offset_control", "dequant"},
    Trait.CONTRACTION: {"convolution", "deconvolution", "linear", "matmul"},
    Trait.CONVOLUTION: {"convolution", "deconvolution"},
    Trait.STORED_KERNEL: {"convolution", "deconvolution", "linear"},
    Trait.POOL: {"average_pool", "max_pool", "l2norm_pool"},
    Trait.REDUCTION: {"reduce_avg", "reduce_max", "reduce_min", "reduce_sum"},
    Trait.NORMALISATION: {"softmax", "layer_norm", "instance_norm"},
    Trait.MOVEMENT: MOVES,
    Trait.VIEW: {"reshape", "flatten", "unflatten"},
    Trait.EXACT: {
        *("relu", "abs", "max", "min", "reduce_max", "reduce_min", "max_pool", "cast", "arg_min_max"),
        *("global_arg_min_max", "n_relu", "clamped_relu"),
        *(MOVES | COMPARISONS),
    },
    Trait.TEXTURE: {"resize", "resample", "crop_resize"},
    Trait.NATIVE: {"sdpa", "unit"},
    Trait.RING: {"state", "ring_buffer_reader", "ring_buffer_writer"},
    Trait.HOST: {
        *("convolution", "deconvolution", "linear", "matmul", "average_pool", "max_pool", "l2norm_pool"),
        *("add", "sub", "mult", "div", "max", "min", "power", "abs", "square", "scaled_elementwise"),
    },
    Trait.IN_PLACE: {
        *("gain_offset_control", "add", "sub", "mult", "div", "max", "min", "power", "abs", "square", "sqr"),
        *ACTIVATIONS,
    },
}


def test_the_members_of_every_trait():
    assert set(TRAITS) == set(Trait)
    for trait, kinds in TRAITS.items():
        assert kinds_with(trait) == kinds, trait


def test_an_op_and_its_declaration_have_the_same_traits():
    for kind in (*OPS, *STRUCTURAL):
        op = Op(f"anec.{kind}")
        assert {trait for trait in Trait if op.is_a(trait)} == op.spec.traits
    assert kinds_with(Trait.POOL, Trait.EXACT) == {"max_pool"}
    assert kinds_with(Trait.ACTIVATION, Trait.EXACT) == {"relu", "n_relu", "clamped_relu"}
    assert kinds_with() == {*OPS, *STRUCTURAL}


# Attributes by name.

DEFAULTS = {
    ("convolution", "padding_mode"): "Zero",
    ("deconvolution", "padding_mode"): "Zero",
    ("flatten", "flatten_mode"): "NCHW",
    ("unflatten", "flatten_mode"): "NCHW",
    ("gelu", "approximation"): "exact",
    ("leaky_relu", "negative_slope"): 0.0,
    ("gain_offset_control", "gain"): 1.0,
    ("gain_offset_control", "bias"): 0.0,
    ("tanh", "alpha"): 1.0,
    ("tanh", "beta"): 1.0,
    ("r_sqrt", "epsilon"): 0.0,
    ("invert", "epsilon"): 0.0,
    ("log2", "epsilon"): 0.0,
    ("layer_norm", "groups"): 1,
}


def test_declared_defaults():
    declared = {
        (name.removeprefix("anec."), each.name): each.default
        for name in (*spec_names(), *structural_names())
        for each in spec(name).attributes.values()
        if each.default is not None and each.kind != "u"
    }
    assert declared == DEFAULTS
    for (kind, name), default in DEFAULTS.items():
        value = Op(f"anec.{kind}")[name]
        assert value == default
        assert type(value) is type(default)


def test_an_attribute_by_its_name():
    assert Op("anec.tanh", attrs={"alpha": 2.0})["alpha"] == 2.0
    assert Op("anec.matmul")["transpose_lhs"] is False
    assert Op("anec.matmul", attrs={"transpose_lhs": True})["transpose_lhs"] is True
    with pytest.raises(AnecError, match=r"anec\.convolution: attribute 'strides' is missing and has no default"):
        Op("anec.convolution")["strides"]
    with pytest.raises(AnecError, match=r"anec\.convolution: attribute 'kernel_scale' is missing"):
        Op("anec.convolution")["kernel_scale"]
    with pytest.raises(AnecError, match=r"anec\.relu: no attribute 'alpha'; the op has none"):
        Op("anec.relu", attrs={"alpha": 1.0})["alpha"]


def test_an_op_of_the_data_that_is_not_declared_is_named(monkeypatch):
    monkeypatch.delitem(OPS, "tanh")
    with pytest.raises(AnecError, match="not declared: tanh; add them to OPS"):
        _specs.__wrapped__()
