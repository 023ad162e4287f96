"""Phase 2 by text: one pass at a time, its rule, what comes close to it, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from test_pass_texts_kit import Case, parameters


def only(op, shape="!2x4x4", reads="!2x4x4"):
    """A program of one op ``%a`` that reads ``%x`` of 2 x 4 x 4."""
    return f"""
        %x = "anec.live_in"() {{name = "x"}} : () -> {reads}
        {op}
        "anec.live_out"(%a) {{names = ["y"]}} : ({shape}) -> ()
    """


STORED_BYTES = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %q = "anec.const_in"() {weight = "codes"} : () -> !2x1x2x1x1xsi8 loc("k")
        %a = "anec.convolution"(%x, %q) {L0, #unit, kernel_scale = "step"}
             : (!2x4x4, !2x1x2x1x1xsi8) -> !2x4x4 loc("a")
        "anec.live_out"(%a) {names = ["y"]} : (!2x4x4) -> ()
"""
STORED = {"codes": [[2.0, -4.0], [6.0, 2.0]], "step": [0.25, 0.125]}
STORED_PLACES = STORED_BYTES.replace("xsi8", "xui6").replace(
    'kernel_scale = "step"', 'kernel_palettized_LUT = "table"'
)
PLACES = {"codes": [[2.0, 1.0], [0.0, 2.0]], "table": [0.125, 0.25, 0.5]}

SINE = only('%a = "anec.sin"(%x) {L0} : (!2x4x4) -> !2x4x4')

LEGACY = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x2x2
        %a = "anec.reshape"(%x) {L0, shape = [1, 1, 1, 1, 8]} : (!2x2x2) -> !1x1x8 loc("a")
        %p = "anec.live_in"() {name = "p"} : () -> !1x1x2
        %b = "anec.broadcast"(%p) {L1, shape = [1, 1, 2, 2, 2]} : (!1x1x2) -> !2x2x2 loc("b")
        %t = "anec.tanh"(%b) {L1.post_activation} : (!2x2x2) -> !2x2x2 loc("t")
        %c = "anec.const_in"() {weight = "divisor"} : () -> !2x1x1
        %d = "anec.div"(%t, %c) {L2} : (!2x2x2, !2x1x1) -> !2x2x2 loc("d")
        %e = "anec.relu"(%d) {L2.post_activation} : (!2x2x2) -> !2x2x2 loc("e")
        "anec.live_out"(%a, %e) {names = ["a", "e"]} : (!1x1x8, !2x2x2) -> ()
"""

RESIZES = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x2x2
        %a = "anec.resize"(%x) {L0, height = 4, sampling_methods = "NearestNeighbor", sampling_modes = "Default",
             width = 4} : (!2x2x2) -> !2x4x4 loc("a")
        %b = "anec.relu"(%a) {L0.post_activation} : (!2x4x4) -> !2x4x4 loc("b")
        %c = "anec.resize"(%b) {L1, height = 4, sampling_methods = "Linear", sampling_modes = "AlignedCorners",
             width = 7} : (!2x4x4) -> !2x4x7 loc("c")
        %d = "anec.tanh"(%c) {L1.post_activation} : (!2x4x7) -> !2x4x7 loc("d")
        "anec.live_out"(%d) {names = ["y"]} : (!2x4x7) -> ()
"""

GATHERS = """
        %x = "anec.live_in"() {name = "x"} : () -> !4x2x2
        %a = "anec.gather_nd"(%x) {L0, axes = [2], indices = [1, 2, 0, 1, 2, -1]} : (!4x2x2) -> !6x2x2 loc("a")
        %i = "anec.const_in"() {weight = "places"} : () -> !3x1x1
        %b = "anec.gather_nd"(%x, %i) {L1, axes = [2, 3, 4]} : (!4x2x2, !3x1x1) -> !1x1x1
        "anec.live_out"(%a, %b) {names = ["a", "b"]} : (!6x2x2, !1x1x1) -> ()
"""

MIRROR = """
        %x = "anec.live_in"() {name = "x"} : () -> !1x3x3
        %a = "anec.padding"(%x) {L0, background_value = 0.0, padding_modes = "Reflective",
             padding_sizes = [[0, 0], [0, 0], [0, 0], [1, 0], [0, 2]]} : (!1x3x3) -> !1x4x5 loc("a")
        %b = "anec.padding"(%a) {L1, background_value = 0.0, padding_modes = "Zero",
             padding_sizes = [[0, 0], [0, 0], [0, 0], [1, 0], [0, 0]]} : (!1x4x5) -> !1x5x5 loc("b")
        "anec.live_out"(%b) {names = ["y"]} : (!1x5x5) -> ()
"""

GROUPS = """
        %x = "anec.live_in"() {name = "x"} : () -> !66x2x1
        %k = "anec.const_in"() {weight = "kernel"} : () -> !4x1x33x2x1
        %a = "anec.convolution"(%x, %k) {L0, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 1, 0, 0, 0],
             groups = 2, kernel_sizes = [1, 2, 1], strides = [1, 1, 1]} : (!66x2x1, !4x1x33x2x1) -> !4x2x1 loc("a")
        %o = "anec.const_in"() {weight = "each"} : () -> !4x1x1
        %b = "anec.gain_offset_control"(%a, %o, %o) {L0.goc} : (!4x2x1, !4x1x1, !4x1x1) -> !4x2x1 loc("b")
        %c = "anec.transpose"(%b) {L0.transpose, transpose_list = [[3, 4], [4, 3]]} : (!4x2x1) -> !4x1x2 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!4x1x2) -> ()
"""
GROUP_KERNEL = np.arange(4 * 33 * 2).reshape(4, 33, 2, 1) % 7.0

STRIDES = """
        %x = "anec.live_in"() {name = "x"} : () -> !1x1x12
        %k = "anec.const_in"() {weight = "kernel"} : () -> !1x1x1x1x3
        %a = "anec.convolution"(%x, %k) {L0, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 1, 1],
             groups = 1, kernel_sizes = [1, 1, 3], strides = [1, 1, 6]} : (!1x1x12, !1x1x1x1x3) -> !1x1x2 loc("a")
        %b = "anec.relu"(%a) {L0.post_activation} : (!1x1x2) -> !1x1x2 loc("b")
        %c = "anec.convolution"(%x, %k) {L1, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 1, 1],
             groups = 1, kernel_sizes = [1, 1, 3], strides = [1, 1, 5]} : (!1x1x12, !1x1x1x1x3) -> !1x1x3 loc("c")
        %d = "anec.relu"(%c) {L1.post_activation} : (!1x1x3) -> !1x1x3 loc("d")
        %e = "anec.convolution"(%x, %k) {L2, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 1, 1],
             groups = 1, kernel_sizes = [1, 1, 3], strides = [1, 1, 8]} : (!1x1x12, !1x1x1x1x3) -> !1x1x2 loc("e")
        "anec.live_out"(%b, %d, %e) {names = ["b", "d", "e"]} : (!1x1x2, !1x1x3, !1x1x2) -> ()
"""

WIDE = """
        %x = "anec.live_in"() {name = "x"} : () -> !1x1x5
        %k = "anec.const_in"() {weight = "nine"} : () -> !1x1x1x1x9
        %a = "anec.convolution"(%x, %k) {L0, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 4, 4],
             groups = 1, kernel_sizes = [1, 1, 9], strides = [1, 1, 1]} : (!1x1x5, !1x1x1x1x9) -> !1x1x5 loc("a")
        %b = "anec.relu"(%a) {L0.post_activation} : (!1x1x5) -> !1x1x5 loc("b")
        %h = "anec.const_in"() {weight = "eight"} : () -> !1x1x1x1x8
        %c = "anec.convolution"(%b, %h) {L1, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 4, 3],
             groups = 1, kernel_sizes = [1, 1, 8], strides = [1, 1, 1]} : (!1x1x5, !1x1x1x1x8) -> !1x1x5 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!1x1x5) -> ()
"""
WIDE_KERNELS = {"nine": np.arange(1.0, 10.0).reshape(1, 1, 1, 9), "eight": np.ones((1, 1, 1, 8))}

PRODUCT = """
        %x = "anec.live_in"() {name = "x"} : () -> !1x3x512
        %y = "anec.live_in"() {name = "y"} : () -> !512x3x512
        %a = "anec.matmul"(%x, %y) {L0} : (!1x3x512, !512x3x512) -> !1x3x512 loc("a")
        %b = "anec.relu"(%a) {L0.post_activation} : (!1x3x512) -> !1x3x512 loc("b")
        "anec.live_out"(%b) {names = ["y"]} : (!1x3x512) -> ()
"""

LARGE = """
        %x = "anec.live_in"() {name = "x"} : () -> !262144x1x1
        %k = "anec.const_in"() {weight = "kernel"} : () -> !33x1x262144x1x1
        %a = "anec.convolution"(%x, %k) {#unit, L0} : (!262144x1x1, !33x1x262144x1x1) -> !33x1x1 loc("a")
        %o = "anec.const_in"() {weight = "each"} : () -> !33x1x1
        %b = "anec.gain_offset_control"(%a, %o, %o) {L0.goc} : (!33x1x1, !33x1x1, !33x1x1) -> !33x1x1 loc("b")
        %c = "anec.transpose"(%b) {L0.transpose, transpose_list = [[2, 4], [4, 2]]} : (!33x1x1) -> !1x1x33 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!1x1x33) -> ()
"""
LARGE_KERNEL = np.broadcast_to(np.arange(33).reshape(33, 1, 1, 1) % 5.0, (33, 262144, 1, 1))

TURN = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x3x4
        %a = "anec.relu"(%x) {L0} : (!2x3x4) -> !2x3x4 loc("a")
        %b = "anec.transpose"(%a) {L0.transpose, transpose_list = [[2, 3], [3, 4], [4, 2]]}
             : (!2x3x4) -> !3x4x2 loc("b")
        %c = "anec.quant"(%b) {L0.quant, scale = 0.5, to = "si8", zero_point = 0} : (!3x4x2) -> !3x4x2xsi8 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!3x4x2xsi8) -> ()
"""

SLICES = """
        %x = "anec.live_in"() {name = "x"} : () -> !4x4x4
        %a = "anec.input_view"(%x) {L0, dimension = 4, offset = 1, size = 2, step = 1} : (!4x4x4) -> !4x4x2
        %b = "anec.input_view"(%a) {L1, dimension = 3, offset = 3, size = 4, step = -1} : (!4x4x2) -> !4x4x2
        %c = "anec.input_view"(%b) {L2, dimension = 2, offset = 1, size = 3, step = 1} : (!4x4x2) -> !3x4x2
        %d = "anec.input_view"(%c) {L3, dimension = 3, offset = 0, size = 2, step = 2} : (!3x4x2) -> !3x2x2
        "anec.live_out"(%d) {names = ["y"]} : (!3x2x2) -> ()
"""

LEGALISE = [
    Case(
        "legacy-forms",
        "below A13 a line is a flatten, a broadcast a sum and a product, a quotient a product",
        LEGACY,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x2x2
        %f = "anec.flatten"(%x) {L3, flatten_mode = "NCHW"} : (!2x2x2) -> !8x1x1 loc("a")
        %a = "anec.transpose"(%f) {L4, transpose_list = [[2, 4], [4, 2]]} : (!8x1x1) -> !1x1x8 loc("a")
        %p = "anec.live_in"() {name = "p"} : () -> !1x1x2
        %z = "anec.const_in"() {weight = "$zeros"} : () -> !1x2x1 loc("b")
        %g = "anec.add"(%p, %z) {L5} : (!1x1x2, !1x2x1) -> !1x2x2 loc("b")
        %o = "anec.const_in"() {weight = "$ones"} : () -> !2x1x1 loc("b")
        %b = "anec.matmul"(%o, %g) {L6} : (!2x1x1, !1x2x2) -> !2x2x2 loc("b")
        %t = "anec.tanh"(%b) {L6.post_activation} : (!2x2x2) -> !2x2x2 loc("t")
        %c = "anec.const_in"() {weight = "$inverse"} : () -> !2x1x1
        %d = "anec.mult"(%t, %c) {L2} : (!2x2x2, !2x1x1) -> !2x2x2 loc("d")
        %e = "anec.relu"(%d) {L2.post_activation} : (!2x2x2) -> !2x2x2 loc("e")
        "anec.live_out"(%a, %e) {names = ["a", "e"]} : (!1x1x8, !2x2x2) -> ()
        """,
        chip="h12",
        weights={"divisor": [4.0, 3.0]},
        made={"zeros": [0.0, 0.0], "ones": [1.0, 1.0], "inverse": [0.25, 0.333251953125]},  # fp16(1/3)
    ),
    Case("legacy-forms", "from A13 on nothing of it", LEGACY, weights={"divisor": [4.0, 3.0]}),
    Case(
        "legacy-forms",
        "below A13 a mean of a map is a pool, in steps of at most 29 (U69)",
        only('%a = "anec.reduce_avg"(%x) {L0, axes = [3, 4]} : (!2x56x7) -> !2x1x1', "!2x1x1", "!2x56x7"),
        only(
            """%p = "anec.average_pool"(%x) {L1, ksize = [1, 28, 7], padding = [0, 0, 0, 0, 0, 0],
                  stride = [1, 28, 7]} : (!2x56x7) -> !2x2x1
               %a = "anec.average_pool"(%p) {L0, ksize = [1, 2, 1], padding = [0, 0, 0, 0, 0, 0],
                  stride = [1, 2, 1]} : (!2x2x1) -> !2x1x1""",
            "!2x1x1",
            "!2x56x7",
        ),
        chip="h12",
    ),
    Case(
        "legacy-forms",
        "a reshape to a plane is no flatten",
        only('%a = "anec.reshape"(%x) {L0, shape = [1, 1, 8, 1, 4]} : (!2x4x4) -> !8x1x4', "!8x1x4"),
        chip="m9",
        refused="this family can only flatten each image to one line",
        reject="cannot be lowered as Flatten on ANE",
    ),
    Case(
        "legacy-forms",
        "a divisor that is computed has no reciprocal",
        only('%a = "anec.div"(%x, %x) {L0} : (!2x4x4, !2x4x4) -> !2x4x4'),
        chip="h11",
        refused="divides by a stored fp16 constant only",
    ),
    Case(
        "resize-strategies",
        "with a texture engine both stay",
        RESIZES,
        RESIZES.replace("{L0, ", '{L0, data_path = "texture", ').replace("{L1, ", '{L1, data_path = "texture", '),
        chip="h14",
    ),
    Case(
        "resize-strategies",
        "else whole factors are a deconvolution that keeps its slots, others a product along the axis that does not",
        RESIZES,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x2x2
        %k = "anec.const_in"() {weight = "$ones"} : () -> !2x1x1x2x2 loc("a")
        %a = "anec.deconvolution"(%x, %k) {L2, channel_wise, dilation_rates = [1, 1, 1],
             explicit_padding = [0, 0, 0, 0, 0, 0], groups = 2, kernel_sizes = [1, 2, 2], padding_style = "EXPLICIT",
             strides = [1, 2, 2], weights_layout = "OIHW"} : (!2x2x2, !2x1x1x2x2) -> !2x4x4 loc("a")
        %b = "anec.relu"(%a) {L2.post_activation} : (!2x4x4) -> !2x4x4 loc("b")
        %e = "anec.transpose"(%b) {L3, transpose_list = [[2, 4], [4, 2]]} : (!2x4x4) -> !4x4x2 loc("c")
        %m = "anec.const_in"() {weight = "$mix"} : () -> !7x1x4x1x1 loc("c")
        %f = "anec.convolution"(%e, %m) {#unit, L4, padding_style = "EXPLICIT", weights_layout = "OIHW"}
             : (!4x4x2, !7x1x4x1x1) -> !7x4x2 loc("c")
        %c = "anec.transpose"(%f) {L5, transpose_list = [[2, 4], [4, 2]]} : (!7x4x2) -> !2x4x7 loc("c")
        %d = "anec.tanh"(%c) {L6} : (!2x4x7) -> !2x4x7 loc("d")
        "anec.live_out"(%d) {names = ["y"]} : (!2x4x7) -> ()
        """,
        made={
            "ones": np.ones((2, 1, 2, 2)),
            "mix": np.maximum(0, 1 - np.abs(np.arange(7)[:, None] / 2 - np.arange(4))).reshape(7, 4, 1, 1),
        },
    ),
    Case(
        "resize-strategies",
        "a linear filter repeats the edges first, the last column without a view that begins elsewhere",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2x3
        %a = "anec.resize"(%x) {L0, height = 4, sampling_methods = "Linear", sampling_modes = "UnalignedCorners",
             width = 6} : (!1x2x3) -> !1x4x6
        "anec.live_out"(%a) {names = ["y"]} : (!1x4x6) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2x3
        %a = "anec.input_view"(%x) {L1, dimension = 3, offset = 0, size = 1, step = 1} : (!1x2x3) -> !1x1x3
        %b = "anec.input_view"(%x) {L2, dimension = 3, offset = 1, size = 1, step = 1} : (!1x2x3) -> !1x1x3
        %c = "anec.concat"(%a, %x, %b) {L3, axis = 3} : (!1x1x3, !1x2x3, !1x1x3) -> !1x4x3
        %d = "anec.input_view"(%c) {L4, dimension = 4, offset = 0, size = 1, step = 1} : (!1x4x3) -> !1x4x1
        %e = "anec.input_view"(%c) {L5, dimension = 4, offset = 0, size = 2, step = 2} : (!1x4x3) -> !1x4x2
        %s = "anec.const_in"() {weight = "$second"} : () -> !1x1x1x1x2
        %f = "anec.convolution"(%e, %s) {L6, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 0, 0],
             groups = 1, kernel_sizes = [1, 1, 2], padding_style = "EXPLICIT", strides = [1, 1, 1],
             weights_layout = "OIHW"} : (!1x4x2, !1x1x1x1x2) -> !1x4x1
        %g = "anec.concat"(%d, %c, %f) {L7, axis = 4} : (!1x4x1, !1x4x3, !1x4x1) -> !1x4x5
        %t = "anec.const_in"() {weight = "$triangle"} : () -> !1x1x1x4x4
        %h = "anec.deconvolution"(%g, %t) {L8, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 3, 3, 3, 3],
             groups = 1, kernel_sizes = [1, 4, 4], padding_style = "EXPLICIT", strides = [1, 2, 2],
             weights_layout = "OIHW"} : (!1x4x5, !1x1x1x4x4) -> !1x4x6
        "anec.live_out"(%h) {names = ["y"]} : (!1x4x6) -> ()
        """,
        made={
            "second": [[[[0.0, 1.0]]]],
            "triangle": np.outer([0.25, 0.75, 0.75, 0.25], [0.25, 0.75, 0.75, 0.25]).reshape(1, 1, 4, 4),
        },
    ),
    Case(
        "resize-strategies",
        "a filter without a published kernel is refused",
        only(
            '%a = "anec.resize"(%x) {L0, height = 8, sampling_methods = "Cubic", sampling_modes = "Default",'
            " width = 8} : (!2x4x4) -> !2x8x8",
            "!2x8x8",
        ),
        refused="sampling Cubic on the grid Default is not published",
        reject="failed to map resize layer",
    ),
    Case(
        "gather-gate",
        "runs of fixed indices become views, the whole is no view; three axes of one image are in the envelope",
        GATHERS,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x2x2
        %v = "anec.input_view"(%x) {L2, dimension = 2, offset = 1, size = 2, step = 1} : (!4x2x2) -> !2x2x2 loc("a")
        %a = "anec.concat"(%v, %x) {L3, axis = 2} : (!2x2x2, !4x2x2) -> !6x2x2 loc("a")
        %i = "anec.const_in"() {weight = "places"} : () -> !3x1x1
        %b = "anec.gather_nd"(%x, %i) {L1, axes = [2, 3, 4]} : (!4x2x2, !3x1x1) -> !1x1x1
        "anec.live_out"(%a, %b) {names = ["a", "b"]} : (!6x2x2, !1x1x1) -> ()
        """,
        weights={"places": [3.0, 0.0, 1.0]},
    ),
    Case(
        "gather-gate",
        "a texture engine takes every gather",
        GATHERS,
        GATHERS.replace("{L0, ", '{L0, data_path = "texture", ').replace("{L1, ", '{L1, data_path = "texture", '),
        chip="h14",
        weights={"places": [3.0, 0.0, 1.0]},
    ),
    Case(
        "gather-gate",
        "indices that arrive along one axis are in no envelope",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x2x2
        %i = "anec.live_in"() {name = "i"} : () -> !1x1x3
        %b = "anec.gather_nd"(%x, %i) {L0, axes = [2]} : (!4x2x2, !1x1x3) -> !3x2x2
        "anec.live_out"(%b) {names = ["y"]} : (!3x2x2) -> ()
        """,
        refused="indices that arrive at run time",
        reject="Cannot decompose layer",
    ),
    Case(
        "gather-gate",
        "a pad that mirrors joins views that run back, the columns on H meanwhile; zeros stay",
        MIRROR,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x3x3
        %r = "anec.input_view"(%x) {L2, dimension = 3, offset = 1, size = 1, step = -1} : (!1x3x3) -> !1x1x3 loc("a")
        %c = "anec.concat"(%r, %x) {L3, axis = 3} : (!1x1x3, !1x3x3) -> !1x4x3 loc("a")
        %d = "anec.transpose"(%c) {L4, transpose_list = [[3, 4], [4, 3]]} : (!1x4x3) -> !1x3x4 loc("a")
        %e = "anec.input_view"(%d) {L5, dimension = 3, offset = 1, size = 2, step = -1} : (!1x3x4) -> !1x2x4 loc("a")
        %f = "anec.concat"(%d, %e) {L6, axis = 3} : (!1x3x4, !1x2x4) -> !1x5x4 loc("a")
        %a = "anec.transpose"(%f) {L7, transpose_list = [[3, 4], [4, 3]]} : (!1x5x4) -> !1x4x5 loc("a")
        %b = "anec.padding"(%a) {L1, background_value = 0.0, padding_modes = "Zero",
             padding_sizes = [[0, 0], [0, 0], [0, 0], [1, 0], [0, 0]]} : (!1x4x5) -> !1x5x5 loc("b")
        "anec.live_out"(%b) {names = ["y"]} : (!1x5x5) -> ()
        """,
    ),
    Case("gather-gate", "and a texture engine does it", MIRROR, chip="h14"),
    Case(
        "large-strides",
        "6 is 3 blocks to the channels and a stride of 2, 5 goes there whole, 8 is native",
        STRIDES,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x1x12
        %k = "anec.const_in"() {weight = "kernel"} : () -> !1x1x1x1x3
        %p = "anec.padding"(%x) {L3, background_value = 0.0, padding_modes = "Zero",
             padding_sizes = [[0, 0], [0, 0], [0, 0], [0, 0], [1, 0]]} : (!1x1x12) -> !1x1x13 loc("a")
        %v = "anec.input_view"(%p) {L4, dimension = 4, offset = 0, size = 9, step = 1} : (!1x1x13) -> !1x1x9 loc("a")
        %u = "anec.pixel_unshuffle"(%v) {L5, factors = [1, 1, 3]} : (!1x1x9) -> !3x1x3 loc("a")
        %r = "anec.const_in"() {weight = "$regrouped"} : () -> !1x1x3x1x1
        %a = "anec.convolution"(%u, %r) {L0, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 0, 0],
             groups = 1, kernel_sizes = [1, 1, 1], strides = [1, 1, 2]} : (!3x1x3, !1x1x3x1x1) -> !1x1x2 loc("a")
        %b = "anec.relu"(%a) {L0.post_activation} : (!1x1x2) -> !1x1x2 loc("b")
        %q = "anec.padding"(%x) {L7, background_value = 0.0, padding_modes = "Zero",
             padding_sizes = [[0, 0], [0, 0], [0, 0], [0, 0], [1, 2]]} : (!1x1x12) -> !1x1x15 loc("c")
        %w = "anec.pixel_unshuffle"(%q) {L8, factors = [1, 1, 5]} : (!1x1x15) -> !5x1x3 loc("c")
        %s = "anec.const_in"() {weight = "$whole"} : () -> !1x1x5x1x1
        %c = "anec.convolution"(%w, %s) {L1, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 0, 0],
             groups = 1, kernel_sizes = [1, 1, 1], strides = [1, 1, 1]} : (!5x1x3, !1x1x5x1x1) -> !1x1x3 loc("c")
        %d = "anec.relu"(%c) {L1.post_activation} : (!1x1x3) -> !1x1x3 loc("d")
        %e = "anec.convolution"(%x, %k) {L2, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 1, 1],
             groups = 1, kernel_sizes = [1, 1, 3], strides = [1, 1, 8]} : (!1x1x12, !1x1x1x1x3) -> !1x1x2 loc("e")
        "anec.live_out"(%b, %d, %e) {names = ["b", "d", "e"]} : (!1x1x2, !1x1x3, !1x1x2) -> ()
        """,
        weights={"kernel": [[[[1.0, 2.0, 3.0]]]]},
        made={
            "regrouped": [[[[1.0]], [[2.0]], [[3.0]]]],
            "whole": [[[[1.0]], [[2.0]], [[3.0]], [[0.0]], [[0.0]]]],
        },
    ),
    Case(
        "block-factors",
        "blocks of 5 columns by views and transposes, blocks of 2 stay",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2x10
        %a = "anec.pixel_unshuffle"(%x) {L0, factors = [1, 1, 5]} : (!1x2x10) -> !5x2x2 loc("a")
        %b = "anec.pixel_unshuffle"(%x) {L1, factors = [1, 2, 2]} : (!1x2x10) -> !4x1x5 loc("b")
        "anec.live_out"(%a, %b) {names = ["a", "b"]} : (!5x2x2, !4x1x5) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2x10
        %r = "anec.reshape"(%x) {L2, shape = [1, 1, 2, 1, 10]} : (!1x2x10) -> !2x1x10 loc("a")
        %s = "anec.transpose"(%r) {L3, transpose_list = [[2, 3], [3, 2]]} : (!2x1x10) -> !1x2x10 loc("a")
        %t = "anec.reshape"(%s) {L4, shape = [1, 1, 2, 2, 5]} : (!1x2x10) -> !2x2x5 loc("a")
        %u = "anec.transpose"(%t) {L5, transpose_list = [[2, 4], [3, 2], [4, 3]]} : (!2x2x5) -> !5x2x2 loc("a")
        %a = "anec.reshape"(%u) {L0, shape = [1, 1, 5, 2, 2]} : (!5x2x2) -> !5x2x2 loc("a")
        %b = "anec.pixel_unshuffle"(%x) {L1, factors = [1, 2, 2]} : (!1x2x10) -> !4x1x5 loc("b")
        "anec.live_out"(%a, %b) {names = ["a", "b"]} : (!5x2x2, !4x1x5) -> ()
        """,
    ),
    Case(
        "expand-encodings",
        "an M1 folds 8-bit kernels: the numbers they stand for, and no scale",
        STORED_BYTES,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {folded = "int8", weight = "$kernel"} : () -> !2x1x2x1x1 loc("k")
        %a = "anec.convolution"(%x, %k) {L0, #unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4 loc("a")
        "anec.live_out"(%a) {names = ["y"]} : (!2x4x4) -> ()
        """,
        chip="h13",
        weights=STORED,
        made={"kernel": [[0.5, -1.0], [0.75, 0.25]]},
    ),
    Case(
        "expand-encodings",
        "and an M2 streams them",
        STORED_BYTES,
        chip="h14",
        weights=STORED,
    ),
    Case(
        "expand-encodings",
        "a palette of 6 bits is none of the M1's",
        STORED_PLACES,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {folded = "lut6", weight = "$kernel"} : () -> !2x1x2x1x1 loc("k")
        %a = "anec.convolution"(%x, %k) {L0, #unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4 loc("a")
        "anec.live_out"(%a) {names = ["y"]} : (!2x4x4) -> ()
        """,
        chip="h13",
        weights=PLACES,
        made={"kernel": [[0.5, 0.25], [0.125, 0.5]]},
    ),
    Case(
        "expand-encodings",
        "one of 4 bits is",
        STORED_PLACES.replace("ui6", "ui4"),
        chip="h13",
        weights=PLACES,
    ),
    Case(
        "group-convolutions",
        "66 numbers a dot product are too many for A12: each group alone, the affine with each, the transpose behind",
        GROUPS,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !66x2x1
        %v0 = "anec.input_view"(%x) {L2, dimension = 2, offset = 0, size = 33, step = 1}
              : (!66x2x1) -> !33x2x1 loc("a")
        %k0 = "anec.const_in"() {weight = "$kernel0"} : () -> !2x1x33x2x1
        %a0 = "anec.convolution"(%v0, %k0) {L3, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 1, 0, 0, 0],
              groups = 1, kernel_sizes = [1, 2, 1], strides = [1, 1, 1]} : (!33x2x1, !2x1x33x2x1) -> !2x2x1 loc("a")
        %o0 = "anec.const_in"() {weight = "$each0"} : () -> !2x1x1
        %b0 = "anec.gain_offset_control"(%a0, %o0, %o0) {L3.goc} : (!2x2x1, !2x1x1, !2x1x1) -> !2x2x1 loc("b")
        %v1 = "anec.input_view"(%x) {L4, dimension = 2, offset = 33, size = 33, step = 1}
              : (!66x2x1) -> !33x2x1 loc("a")
        %k1 = "anec.const_in"() {weight = "$kernel1"} : () -> !2x1x33x2x1
        %a1 = "anec.convolution"(%v1, %k1) {L5, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 1, 0, 0, 0],
              groups = 1, kernel_sizes = [1, 2, 1], strides = [1, 1, 1]} : (!33x2x1, !2x1x33x2x1) -> !2x2x1 loc("a")
        %o1 = "anec.const_in"() {weight = "$each1"} : () -> !2x1x1
        %b1 = "anec.gain_offset_control"(%a1, %o1, %o1) {L5.goc} : (!2x2x1, !2x1x1, !2x1x1) -> !2x2x1 loc("b")
        %j = "anec.concat"(%b0, %b1) {L6, axis = 2} : (!2x2x1, !2x2x1) -> !4x2x1 loc("a")
        %c = "anec.transpose"(%j) {L1, transpose_list = [[3, 4], [4, 3]]} : (!4x2x1) -> !4x1x2 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!4x1x2) -> ()
        """,
        chip="h12",
        weights={"kernel": GROUP_KERNEL, "each": [1.0, 2.0, 3.0, 4.0]},
        made={
            "kernel0": GROUP_KERNEL[:2],
            "kernel1": GROUP_KERNEL[2:],
            "each0": [1.0, 2.0],
            "each1": [3.0, 4.0],
        },
    ),
    Case(
        "group-convolutions",
        "and few enough for A13",
        GROUPS,
        weights={"kernel": GROUP_KERNEL, "each": [1.0, 2.0, 3.0, 4.0]},
    ),
    Case(
        "large-kernels",
        "beyond 7 columns a kernel takes the large mode",
        WIDE,
        WIDE.replace("{L0, ", "{L0, large_kernel, ").replace("{L1, ", "{L1, large_kernel, "),
        weights=WIDE_KERNELS,
    ),
    Case(
        "large-kernels",
        "beyond 8 columns it is two shifted kernels at stride two where that was measured",
        WIDE,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x1x5
        %k = "anec.const_in"() {weight = "$two"} : () -> !2x1x1x1x10
        %a = "anec.convolution"(%x, %k) {L2, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 4, 5],
             groups = 1, kernel_sizes = [1, 1, 10], strides = [1, 1, 2]} : (!1x1x5, !2x1x1x1x10) -> !2x1x3 loc("a")
        %b = "anec.relu"(%a) {L2.post_activation} : (!2x1x3) -> !2x1x3 loc("b")
        %s = "anec.channel_to_space"(%b) {L3, factors = [1, 1, 2]} : (!2x1x3) -> !1x1x6 loc("a")
        %v = "anec.input_view"(%s) {L4, dimension = 4, offset = 0, size = 5, step = 1} : (!1x1x6) -> !1x1x5 loc("a")
        %h = "anec.const_in"() {weight = "eight"} : () -> !1x1x1x1x8
        %c = "anec.convolution"(%v, %h) {L1, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 4, 3],
             groups = 1, kernel_sizes = [1, 1, 8], strides = [1, 1, 1]} : (!1x1x5, !1x1x1x1x8) -> !1x1x5 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!1x1x5) -> ()
        """,
        chip="h19",
        weights=WIDE_KERNELS,
        made={"two": np.stack([np.r_[1:10, 0], np.r_[0, 1:10]]).reshape(2, 1, 1, 10)},
    ),
    Case(
        "slice-products",
        "1.5 MB on the right are cut along the height where the working set is 1 MB",
        PRODUCT,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x3x512
        %y = "anec.live_in"() {name = "y"} : () -> !512x3x512
        %x0 = "anec.input_view"(%x) {L1, dimension = 3, offset = 0, size = 2, step = 1}
              : (!1x3x512) -> !1x2x512 loc("a")
        %y0 = "anec.input_view"(%y) {L2, dimension = 3, offset = 0, size = 2, step = 1}
              : (!512x3x512) -> !512x2x512 loc("a")
        %a0 = "anec.matmul"(%x0, %y0) {L3} : (!1x2x512, !512x2x512) -> !1x2x512 loc("a")
        %b0 = "anec.relu"(%a0) {L3.post_activation} : (!1x2x512) -> !1x2x512 loc("b")
        %x1 = "anec.input_view"(%x) {L4, dimension = 3, offset = 2, size = 1, step = 1}
              : (!1x3x512) -> !1x1x512 loc("a")
        %y1 = "anec.input_view"(%y) {L5, dimension = 3, offset = 2, size = 1, step = 1}
              : (!512x3x512) -> !512x1x512 loc("a")
        %a1 = "anec.matmul"(%x1, %y1) {L6} : (!1x1x512, !512x1x512) -> !1x1x512 loc("a")
        %b1 = "anec.relu"(%a1) {L6.post_activation} : (!1x1x512) -> !1x1x512 loc("b")
        %c = "anec.concat"(%b0, %b1) {L7, axis = 3} : (!1x2x512, !1x1x512) -> !1x3x512 loc("a")
        "anec.live_out"(%c) {names = ["y"]} : (!1x3x512) -> ()
        """,
        chip="m9",
    ),
    Case("slice-products", "and not where it is 2 MB", PRODUCT),
    Case(
        "split-kernel-memory",
        "16.5 MB: two pieces with their shares of the affine, the transpose behind the whole",
        LARGE,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !262144x1x1
        %k0 = "anec.const_in"() {weight = "$kernel0"} : () -> !17x1x262144x1x1
        %a0 = "anec.convolution"(%x, %k0) {#unit, L2, piece = [0, 2]}
              : (!262144x1x1, !17x1x262144x1x1) -> !17x1x1 loc("a")
        %o0 = "anec.const_in"() {weight = "$each0"} : () -> !17x1x1
        %b0 = "anec.gain_offset_control"(%a0, %o0, %o0) {L2.goc} : (!17x1x1, !17x1x1, !17x1x1) -> !17x1x1 loc("b")
        %k1 = "anec.const_in"() {weight = "$kernel1"} : () -> !16x1x262144x1x1
        %a1 = "anec.convolution"(%x, %k1) {#unit, L3, piece = [1, 2]}
              : (!262144x1x1, !16x1x262144x1x1) -> !16x1x1 loc("a")
        %o1 = "anec.const_in"() {weight = "$each1"} : () -> !16x1x1
        %b1 = "anec.gain_offset_control"(%a1, %o1, %o1) {L3.goc} : (!16x1x1, !16x1x1, !16x1x1) -> !16x1x1 loc("b")
        %j = "anec.concat"(%b0, %b1) {L4, axis = 2} : (!17x1x1, !16x1x1) -> !33x1x1 loc("a")
        %c = "anec.transpose"(%j) {L1, transpose_list = [[2, 4], [4, 2]]} : (!33x1x1) -> !1x1x33 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!1x1x33) -> ()
        """,
        weights={"kernel": LARGE_KERNEL, "each": np.arange(33.0)},
        made={
            "kernel0": LARGE_KERNEL[:17],
            "kernel1": LARGE_KERNEL[17:],
            "each0": np.arange(17.0),
            "each1": np.arange(17.0, 33.0),
        },
    ),
    Case(
        "split-kernel-memory",
        "96 KB for the three outputs of a lane do not fit 64 KB: two passes of one layer where nothing streams",
        LARGE.replace("262144", "16384"),
        LARGE.replace("262144", "16384").replace("{#unit, L0}", "{#unit, L0, passes = 2, sub_layers = 17}"),
        chip="h12",
        weights={"kernel": LARGE_KERNEL[:, :16384], "each": np.arange(33.0)},
    ),
    Case(
        "split-kernel-memory",
        "and one pass for a weight that streams, up to 16 MB",
        LARGE.replace("262144", "16384"),
        weights={"kernel": LARGE_KERNEL[:, :16384], "each": np.arange(33.0)},
    ),
    Case(
        "split-kernel-memory",
        "the kernel of one output has to fit",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !32769x1x1
        %k = "anec.const_in"() {weight = "kernel"} : () -> !1x1x32769x1x1
        %a = "anec.convolution"(%x, %k) {#unit, L0} : (!32769x1x1, !1x1x32769x1x1) -> !1x1x1
        "anec.live_out"(%a) {names = ["y"]} : (!1x1x1) -> ()
        """,
        chip="h12",
        weights={"kernel": np.zeros((1, 32769, 1, 1))},
        refused="one output channel takes 65538 bytes; kernel memory holds 65536",
        reject="can not fit",
    ),
    Case(
        "multi-pass-transposes",
        "without a native transpose two exchanges by DMA, and the slots open layers",
        TURN,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x3x4
        %a = "anec.relu"(%x) {L0} : (!2x3x4) -> !2x3x4 loc("a")
        %d = "anec.transpose"(%a) {L2, data_path = "dma", transpose_list = [[2, 3], [3, 2]]}
             : (!2x3x4) -> !3x2x4 loc("b")
        %b = "anec.transpose"(%d) {L3, data_path = "dma", transpose_list = [[3, 4], [4, 3]]}
             : (!3x2x4) -> !3x4x2 loc("b")
        %c = "anec.quant"(%b) {L1, scale = 0.5, to = "si8", zero_point = 0} : (!3x4x2) -> !3x4x2xsi8 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!3x4x2xsi8) -> ()
        """,
        chip="h12",
    ),
    Case("multi-pass-transposes", "a native one stays in its slot", TURN),
    Case(
        "multi-pass-transposes",
        "up to 16384 columns",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x16384
        %a = "anec.transpose"(%x) {L0, transpose_list = [[2, 3], [3, 2]]} : (!2x1x16384) -> !1x2x16384
        %y = "anec.live_in"() {name = "y"} : () -> !2x1x16385
        %b = "anec.transpose"(%y) {L1, transpose_list = [[2, 3], [3, 2]]} : (!2x1x16385) -> !1x2x16385
        "anec.live_out"(%a, %b) {names = ["a", "b"]} : (!1x2x16384, !1x2x16385) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x16384
        %a = "anec.transpose"(%x) {L0, transpose_list = [[2, 3], [3, 2]]} : (!2x1x16384) -> !1x2x16384
        %y = "anec.live_in"() {name = "y"} : () -> !2x1x16385
        %b = "anec.transpose"(%y) {L2, data_path = "dma", transpose_list = [[2, 3], [3, 2]]}
             : (!2x1x16385) -> !1x2x16385
        "anec.live_out"(%a, %b) {names = ["a", "b"]} : (!1x2x16384, !1x2x16385) -> ()
        """,
    ),
    Case(
        "crop-slices",
        "height and width that begin elsewhere or run back take the crop data path, the width in Q.4 on A13",
        SLICES,
        SLICES.replace("{L0, ", '{L0, data_path = "crop", storage = "q4", ').replace(
            "{L1, ", '{L1, data_path = "crop", storage = "fp16", '
        ),
    ),
    Case(
        "crop-slices",
        "which stays fp16 from A15 on",
        SLICES,
        SLICES.replace("{L0, ", '{L0, data_path = "crop", storage = "fp16", ').replace(
            "{L1, ", '{L1, data_path = "crop", storage = "fp16", '
        ),
        chip="h17s",
    ),
    Case("check-floors", "sine runs from A15 on", SINE, chip="h15"),
    Case(
        "check-floors",
        "and not before",
        SINE,
        refused="anec.sin starts with the M3 and the A16 Bionic; this chip is older",
        reject="This platform doesn't support Neuron Sin",
    ),
    Case(
        "check-floors",
        "a validator reads its support byte",
        only(
            '%a = "anec.padding"(%x) {L0, background_value = 0.0, padding_modes = "Symmetric",'
            " padding_sizes = [[0, 0], [0, 0], [0, 0], [1, 0], [0, 0]]} : (!2x4x4) -> !2x5x4",
            "!2x5x4",
        ),
        refused=r"Padding: the layer needs the support byte texture_engine \(0x81d\)",
        reject="Architecture does not support padding mode",
    ),
    Case(
        "check-extents",
        "a width of the cap, and a wider one that only a transpose reads",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x1x20000
        %a = "anec.transpose"(%x) {L0, transpose_list = [[2, 4], [4, 2]]} : (!1x1x20000) -> !20000x1x1
        %b = "anec.relu"(%a) {L1} : (!20000x1x1) -> !20000x1x1
        %y = "anec.live_in"() {name = "y"} : () -> !1x1x16384
        %c = "anec.relu"(%y) {L2} : (!1x1x16384) -> !1x1x16384
        "anec.live_out"(%b, %c) {names = ["b", "c"]} : (!20000x1x1, !1x1x16384) -> ()
        """,
    ),
    Case(
        "check-extents",
        "a width above its cap",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x1x16385
        %b = "anec.relu"(%x) {L0} : (!1x1x16385) -> !1x1x16385
        "anec.live_out"(%b) {names = ["y"]} : (!1x1x16385) -> ()
        """,
        refused="axis W is 16385; the limit is 16384",
    ),
    Case(
        "check-extents",
        "a contraction above its cap",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !16385x1x1
        %a = "anec.matmul"(%x, %x) {L0, transpose_lhs} : (!16385x1x1, !16385x1x1) -> !1x1x1
        "anec.live_out"(%a) {names = ["y"]} : (!1x1x1) -> ()
        """,
        refused="contraction or output extent of 16385; the limit is 16384",
    ),
    Case(
        "check-program-size",
        "weights of two gigabytes load, one more does not; what two ops read is stored once",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !65536x1x1
        %k = "anec.const_in"() {weight = "first"} : () -> !16384x1x65536x1x1
        %w = "anec.const_in"() {weight = "second"} : () -> !1x1x65536x1x1
        %a = "anec.convolution"(%x, %k) {L0, #unit, segment = 0} : (!65536x1x1, !16384x1x65536x1x1) -> !16384x1x1
        %b = "anec.convolution"(%x, %k) {L1, #unit, segment = 0} : (!65536x1x1, !16384x1x65536x1x1) -> !16384x1x1
        %c = "anec.convolution"(%x, %w) {L2, #unit, segment = 0} : (!65536x1x1, !1x1x65536x1x1) -> !1x1x1
        "anec.live_out"(%a, %b, %c) {names = ["a", "b", "c"]} : (!16384x1x1, !16384x1x1, !1x1x1) -> ()
        """,
        refused="the weights of one program reach 2.15 GB at this op",
    ),
    Case(
        "cut-segments",
        "attention and an authored layer are segments, what lies between is one, an activation unit cuts nothing",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x2
        %n = "anec.const_in"() {weight = "one"} : () -> !1x1x1
        %a = "anec.relu"(%x) {L0} : (!2x1x2) -> !2x1x2
        %b = "anec.sdpa"(%a, %a, %a, %n) {L1} : (!2x1x2, !2x1x2, !2x1x2, !1x1x1) -> !2x1x2
        %c = "anec.unit"(%b) {L2, params = "{\\"Type\\": \\"ATan\\"}", type = "Neuron"} : (!2x1x2) -> !2x1x2
        %d = "anec.tanh"(%x) {L3} : (!2x1x2) -> !2x1x2
        %e = "anec.scaled_elementwise"(%d, %d) {L4, bridge, mode = "Add", scale = 2.0} : (!2x1x2, !2x1x2) -> !2x1x2
        %f = "anec.add"(%c, %e) {L5} : (!2x1x2, !2x1x2) -> !2x1x2
        "anec.live_out"(%f) {names = ["y"]} : (!2x1x2) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x2
        %n = "anec.const_in"() {weight = "one"} : () -> !1x1x1
        %a = "anec.relu"(%x) {L0, segment = 0} : (!2x1x2) -> !2x1x2
        %b = "anec.sdpa"(%a, %a, %a, %n) {L1, segment = 1} : (!2x1x2, !2x1x2, !2x1x2, !1x1x1) -> !2x1x2
        %c = "anec.unit"(%b) {L2, params = "{\\"Type\\": \\"ATan\\"}", segment = 3, type = "Neuron"}
             : (!2x1x2) -> !2x1x2
        %d = "anec.tanh"(%x) {L3, segment = 0} : (!2x1x2) -> !2x1x2
        %e = "anec.scaled_elementwise"(%d, %d) {L4, bridge, mode = "Add", scale = 2.0, segment = 2}
             : (!2x1x2, !2x1x2) -> !2x1x2
        %f = "anec.add"(%c, %e) {L5, segment = 3} : (!2x1x2, !2x1x2) -> !2x1x2
        "anec.live_out"(%f) {names = ["y"]} : (!2x1x2) -> ()
        """,
        weights={"one": [1.0]},
    ),
]
"""Every pass of phase 2."""


@pytest.mark.parametrize("case", parameters(LEGALISE))
def test_a_pass_of_phase_2(case):
    case.check()
