"""Phase 1 by text: one pass at a time, its rule and what comes close to it."""

from __future__ import annotations

import numpy as np
import pytest
from test_pass_texts_kit import Case, parameters

KERNEL = np.arange(1.0, 5.0).reshape(2, 2, 1, 1)

FUSE = [
    Case(
        "drop-copies",
        "what changes nothing goes, a reshape reads through another, a reversing view stays",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %a = "anec.reshape"(%x) {shape = [1, 1, 2, 4, 4]} : (!2x4x4) -> !2x4x4 loc("same")
        %b = "anec.cast"(%a) {to = "f16"} : (!2x4x4) -> !2x4x4
        %c = "anec.input_view"(%b) {dimension = 4, offset = 0, size = 4, step = 1} : (!2x4x4) -> !2x4x4
        %d = "anec.padding"(%c) {background_value = 0.0, padding_modes = "Zero",
             padding_sizes = [[0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]} : (!2x4x4) -> !2x4x4
        %e = "anec.broadcast"(%d) {shape = [1, 1, 2, 4, 4]} : (!2x4x4) -> !2x4x4
        %f = "anec.transpose"(%e) {transpose_list = []} : (!2x4x4) -> !2x4x4
        %g = "anec.reshape"(%f) {shape = [1, 1, 8, 1, 4]} : (!2x4x4) -> !8x1x4 loc("one")
        %h = "anec.reshape"(%g) {shape = [1, 1, 4, 2, 4]} : (!8x1x4) -> !4x2x4 loc("two")
        %i = "anec.input_view"(%x) {dimension = 4, offset = 3, size = 4, step = -1} : (!2x4x4) -> !2x4x4
        "anec.live_out"(%h, %i) {names = ["y", "z"]} : (!4x2x4, !2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %h = "anec.reshape"(%x) {shape = [1, 1, 4, 2, 4]} : (!2x4x4) -> !4x2x4 loc(fused["one", "two"])
        %i = "anec.input_view"(%x) {dimension = 4, offset = 3, size = 4, step = -1} : (!2x4x4) -> !2x4x4
        "anec.live_out"(%h, %i) {names = ["y", "z"]} : (!4x2x4, !2x4x4) -> ()
        """,
    ),
    Case(
        "collapse-quant-dequant",
        "a quant undoes its dequant; another zero point, another format and the other way round stay",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x4xsi8
        %d = "anec.dequant"(%x) {scale = 0.5, zero_point = 3} : (!2x1x4xsi8) -> !2x1x4
        %q = "anec.quant"(%d) {scale = 0.5, to = "si8", zero_point = 3} : (!2x1x4) -> !2x1x4xsi8
        %o = "anec.quant"(%d) {scale = 0.5, to = "si8", zero_point = 2} : (!2x1x4) -> !2x1x4xsi8
        %u = "anec.quant"(%d) {scale = 0.5, to = "ui8", zero_point = 3} : (!2x1x4) -> !2x1x4xui8
        %e = "anec.dequant"(%q) {scale = 0.5, zero_point = 3} : (!2x1x4xsi8) -> !2x1x4
        "anec.live_out"(%o, %u, %e) {names = ["o", "u", "e"]} : (!2x1x4xsi8, !2x1x4xui8, !2x1x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x4xsi8
        %d = "anec.dequant"(%x) {scale = 0.5, zero_point = 3} : (!2x1x4xsi8) -> !2x1x4
        %o = "anec.quant"(%d) {scale = 0.5, to = "si8", zero_point = 2} : (!2x1x4) -> !2x1x4xsi8
        %u = "anec.quant"(%d) {scale = 0.5, to = "ui8", zero_point = 3} : (!2x1x4) -> !2x1x4xui8
        %e = "anec.dequant"(%x) {scale = 0.5, zero_point = 3} : (!2x1x4xsi8) -> !2x1x4
        "anec.live_out"(%o, %u, %e) {names = ["o", "u", "e"]} : (!2x1x4xsi8, !2x1x4xui8, !2x1x4) -> ()
        """,
    ),
    Case(
        "dequant-across-concat",
        "two equal dequants become one behind the concat; unequal ones stay",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x4xsi8
        %y = "anec.live_in"() {name = "y"} : () -> !1x1x4xsi8
        %a = "anec.dequant"(%x) {scale = 0.5, zero_point = 3} : (!2x1x4xsi8) -> !2x1x4 loc("a")
        %b = "anec.dequant"(%y) {scale = 0.5, zero_point = 3} : (!1x1x4xsi8) -> !1x1x4 loc("b")
        %c = "anec.concat"(%a, %b) {axis = 2} : (!2x1x4, !1x1x4) -> !3x1x4 loc("c")
        %d = "anec.dequant"(%x) {scale = 0.5, zero_point = 3} : (!2x1x4xsi8) -> !2x1x4
        %e = "anec.dequant"(%y) {scale = 0.25, zero_point = 3} : (!1x1x4xsi8) -> !1x1x4
        %f = "anec.concat"(%d, %e) {axis = 2} : (!2x1x4, !1x1x4) -> !3x1x4
        "anec.live_out"(%c, %f) {names = ["c", "f"]} : (!3x1x4, !3x1x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x4xsi8
        %y = "anec.live_in"() {name = "y"} : () -> !1x1x4xsi8
        %c = "anec.concat"(%x, %y) {axis = 2} : (!2x1x4xsi8, !1x1x4xsi8) -> !3x1x4xsi8 loc("c")
        %a = "anec.dequant"(%c) {scale = 0.5, zero_point = 3} : (!3x1x4xsi8) -> !3x1x4 loc(fused["a", "b"])
        %d = "anec.dequant"(%x) {scale = 0.5, zero_point = 3} : (!2x1x4xsi8) -> !2x1x4
        %e = "anec.dequant"(%y) {scale = 0.25, zero_point = 3} : (!1x1x4xsi8) -> !1x1x4
        %f = "anec.concat"(%d, %e) {axis = 2} : (!2x1x4, !1x1x4) -> !3x1x4
        "anec.live_out"(%a, %f) {names = ["c", "f"]} : (!3x1x4, !3x1x4) -> ()
        """,
    ),
    Case(
        "dequant-into-weights",
        "a scale, a zero point and a table go into the weight path; a scale below the normal range stays",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "bytes"} : () -> !2x1x2x1x1xsi8
        %d = "anec.dequant"(%k) {scale = 0.5, zero_point = 3} : (!2x1x2x1x1xsi8) -> !2x1x2x1x1 loc("d")
        %y = "anec.convolution"(%x, %d) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4 loc("y")
        %l = "anec.const_in"() {weight = "line"} : () -> !1x1x4
        %i = "anec.const_in"() {weight = "index"} : () -> !2x1x2x1x1xui8
        %g = "anec.gather_nd"(%l, %i) {axes = [4]} : (!1x1x4, !2x1x2x1x1xui8) -> !2x1x2x1x1 loc("g")
        %z = "anec.convolution"(%x, %g) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4 loc("z")
        %t = "anec.dequant"(%k) {scale = 1.0e-06, zero_point = 3} : (!2x1x2x1x1xsi8) -> !2x1x2x1x1
        %w = "anec.convolution"(%x, %t) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        "anec.live_out"(%y, %z, %w) {names = ["y", "z", "w"]} : (!2x4x4, !2x4x4, !2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "bytes"} : () -> !2x1x2x1x1xsi8
        %y = "anec.convolution"(%x, %k) {#unit, kernel_scale = "$scale", kernel_zero_point = "$zero"}
             : (!2x4x4, !2x1x2x1x1xsi8) -> !2x4x4 loc(fused["d", "y"])
        %i = "anec.const_in"() {weight = "index"} : () -> !2x1x2x1x1xui8
        %z = "anec.convolution"(%x, %i) {#unit, kernel_palettized_LUT = "$table"}
             : (!2x4x4, !2x1x2x1x1xui8) -> !2x4x4 loc(fused["g", "z"])
        %t = "anec.dequant"(%k) {scale = 1.0e-06, zero_point = 3} : (!2x1x2x1x1xsi8) -> !2x1x2x1x1
        %w = "anec.convolution"(%x, %t) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        "anec.live_out"(%y, %z, %w) {names = ["y", "z", "w"]} : (!2x4x4, !2x4x4, !2x4x4) -> ()
        """,
        weights={"bytes": KERNEL, "line": [1.0, 2.0, 4.0, 8.0], "index": KERNEL - 1},
        made={"scale": 0.5, "zero": 3.0, "table": [1.0, 2.0, 4.0, 8.0]},
    ),
    Case(
        "collapse-transposes",
        "two become one, opposites cancel, one that moves nothing joins its reshape; one that moves stays",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x3x4
        %a = "anec.transpose"(%x) {transpose_list = [[2, 3], [3, 2]]} : (!2x3x4) -> !3x2x4 loc("a")
        %b = "anec.transpose"(%a) {transpose_list = [[3, 4], [4, 3]]} : (!3x2x4) -> !3x4x2 loc("b")
        %c = "anec.transpose"(%a) {transpose_list = [[2, 3], [3, 2]]} : (!3x2x4) -> !2x3x4 loc("c")
        %d = "anec.reshape"(%x) {shape = [1, 1, 1, 6, 4]} : (!2x3x4) -> !1x6x4 loc("d")
        %e = "anec.transpose"(%d) {transpose_list = [[2, 3], [3, 2]]} : (!1x6x4) -> !6x1x4 loc("e")
        %f = "anec.transpose"(%d) {transpose_list = [[3, 4], [4, 3]]} : (!1x6x4) -> !1x4x6 loc("f")
        "anec.live_out"(%b, %c, %e, %f) {names = ["b", "c", "e", "f"]} : (!3x4x2, !2x3x4, !6x1x4, !1x4x6) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x3x4
        %b = "anec.transpose"(%x) {transpose_list = [[2, 3], [3, 4], [4, 2]]} : (!2x3x4) -> !3x4x2 loc(fused["a", "b"])
        %d = "anec.reshape"(%x) {shape = [1, 1, 1, 6, 4]} : (!2x3x4) -> !1x6x4 loc("d")
        %e = "anec.reshape"(%x) {shape = [1, 1, 6, 1, 4]} : (!2x3x4) -> !6x1x4 loc(fused["d", "e"])
        %f = "anec.transpose"(%d) {transpose_list = [[3, 4], [4, 3]]} : (!1x6x4) -> !1x4x6 loc("f")
        "anec.live_out"(%b, %x, %e, %f) {names = ["b", "c", "e", "f"]} : (!3x4x2, !2x3x4, !6x1x4, !1x4x6) -> ()
        """,
    ),
    Case(
        "transposes-into-matmul",
        "an exchange of C and W sets a flag or clears it; another exchange stays",
        """
        %w = "anec.live_in"() {name = "w"} : () -> !5x1x2
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x3
        %y = "anec.live_in"() {name = "y"} : () -> !2x1x4
        %z = "anec.live_in"() {name = "z"} : () -> !3x4x1
        %a = "anec.transpose"(%x) {transpose_list = [[2, 4], [4, 2]]} : (!4x1x3) -> !3x1x4 loc("a")
        %b = "anec.transpose"(%y) {transpose_list = [[2, 4], [4, 2]]} : (!2x1x4) -> !4x1x2 loc("b")
        %p = "anec.matmul"(%a, %b) : (!3x1x4, !4x1x2) -> !3x1x2 loc("p")
        %q = "anec.matmul"(%w, %b) {transpose_rhs} : (!5x1x2, !4x1x2) -> !5x1x4 loc("q")
        %t = "anec.transpose"(%z) {transpose_list = [[3, 4], [4, 3]]} : (!3x4x1) -> !3x1x4 loc("t")
        %r = "anec.matmul"(%t, %y) {transpose_rhs} : (!3x1x4, !2x1x4) -> !3x1x2 loc("r")
        "anec.live_out"(%p, %q, %r) {names = ["p", "q", "r"]} : (!3x1x2, !5x1x4, !3x1x2) -> ()
        """,
        """
        %w = "anec.live_in"() {name = "w"} : () -> !5x1x2
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x3
        %y = "anec.live_in"() {name = "y"} : () -> !2x1x4
        %z = "anec.live_in"() {name = "z"} : () -> !3x4x1
        %p = "anec.matmul"(%x, %y) {transpose_lhs, transpose_rhs}
             : (!4x1x3, !2x1x4) -> !3x1x2 loc(fused["b", "a", "p"])
        %q = "anec.matmul"(%w, %y) : (!5x1x2, !2x1x4) -> !5x1x4 loc(fused["b", "q"])
        %t = "anec.transpose"(%z) {transpose_list = [[3, 4], [4, 3]]} : (!3x4x1) -> !3x1x4 loc("t")
        %r = "anec.matmul"(%t, %y) {transpose_rhs} : (!3x1x4, !2x1x4) -> !3x1x2 loc("r")
        "anec.live_out"(%p, %q, %r) {names = ["p", "q", "r"]} : (!3x1x2, !5x1x4, !3x1x2) -> ()
        """,
    ),
    Case(
        "products-to-convolutions",
        "a stored right-hand side is a kernel between two exchanges; one that is turned on the left or live stays",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !3x1x2
        %w = "anec.const_in"() {weight = "matrix"} : () -> !2x1x4
        %p = "anec.matmul"(%x, %w) : (!3x1x2, !2x1x4) -> !3x1x4 loc("p")
        %v = "anec.const_in"() {weight = "table"} : () -> !4x1x2xui8
        %b = "anec.const_in"() {weight = "bias"} : () -> !1x1x4
        %q = "anec.linear"(%x, %v, %b) {kernel_lut = "lut"} : (!3x1x2, !4x1x2xui8, !1x1x4) -> !3x1x4 loc("q")
        %t = "anec.const_in"() {weight = "tall"} : () -> !3x1x4
        %r = "anec.matmul"(%x, %t) {transpose_lhs} : (!3x1x2, !3x1x4) -> !2x1x4
        %s = "anec.matmul"(%p, %q) {transpose_rhs} : (!3x1x4, !3x1x4) -> !3x1x3
        "anec.live_out"(%r, %s) {names = ["r", "s"]} : (!2x1x4, !3x1x3) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !3x1x2
        %a = "anec.transpose"(%x) {transpose_list = [[2, 4], [4, 2]]} : (!3x1x2) -> !2x1x3 loc("p")
        %w = "anec.const_in"() {weight = "$turned"} : () -> !4x1x2x1x1 loc("p")
        %c = "anec.convolution"(%a, %w) {#unit, padding_style = "EXPLICIT", weights_layout = "OIHW"}
             : (!2x1x3, !4x1x2x1x1) -> !4x1x3 loc("p")
        %p = "anec.transpose"(%c) {transpose_list = [[2, 4], [4, 2]]} : (!4x1x3) -> !3x1x4 loc("p")
        %d = "anec.transpose"(%x) {transpose_list = [[2, 4], [4, 2]]} : (!3x1x2) -> !2x1x3 loc("q")
        %v = "anec.const_in"() {weight = "$kernel"} : () -> !4x1x2x1x1xui8 loc("q")
        %b = "anec.const_in"() {weight = "bias"} : () -> !4x1x1 loc("q")
        %e = "anec.convolution"(%d, %v, %b) {#unit, kernel_palettized_LUT = "lut", padding_style = "EXPLICIT",
             weights_layout = "OIHW"} : (!2x1x3, !4x1x2x1x1xui8, !4x1x1) -> !4x1x3 loc("q")
        %q = "anec.transpose"(%e) {transpose_list = [[2, 4], [4, 2]]} : (!4x1x3) -> !3x1x4 loc("q")
        %t = "anec.const_in"() {weight = "tall"} : () -> !3x1x4
        %r = "anec.matmul"(%x, %t) {transpose_lhs} : (!3x1x2, !3x1x4) -> !2x1x4
        %s = "anec.matmul"(%p, %q) {transpose_rhs} : (!3x1x4, !3x1x4) -> !3x1x3
        "anec.live_out"(%r, %s) {names = ["r", "s"]} : (!2x1x4, !3x1x3) -> ()
        """,
        weights={
            "matrix": np.arange(8.0).reshape(2, 4),
            "tall": np.ones((3, 4)),
            "table": np.arange(8.0).reshape(4, 2),
            "bias": [1.0, 2.0, 3.0, 4.0],
            "lut": np.arange(8.0) / 4,
        },
        made={
            "turned": np.arange(8.0).reshape(2, 4).T.reshape(4, 2, 1, 1),
            "kernel": np.arange(8.0).reshape(4, 2, 1, 1),
        },
    ),
    Case(
        "products-to-convolutions",
        "a right-hand side of exactly 0x1b8 bytes stays tiled",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x1x1024
        %w = "anec.const_in"() {weight = "matrix"} : () -> !1024x1x1024
        %p = "anec.matmul"(%x, %w) : (!1x1x1024, !1024x1x1024) -> !1x1x1024
        "anec.live_out"(%p) {names = ["p"]} : (!1x1x1024) -> ()
        """,
        weights={"matrix": np.zeros((1024, 1024))},
    ),
    Case(
        "products-to-convolutions",
        "a bias for each row of the product is no bias of the convolution",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x2
        %w = "anec.const_in"() {weight = "matrix"} : () -> !2x1x4
        %b = "anec.const_in"() {weight = "bias"} : () -> !4x1x1
        %p = "anec.matmul"(%x, %w, %b) : (!4x1x2, !2x1x4, !4x1x1) -> !4x1x4
        "anec.live_out"(%p) {names = ["p"]} : (!4x1x4) -> ()
        """,
        weights={"matrix": np.arange(8.0).reshape(2, 4), "bias": [1.0, 2.0, 3.0, 4.0]},
    ),
    Case(
        "bias-into-products",
        "a number for each output is the product's bias, seen through the view behind it",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x2
        %w = "anec.const_in"() {weight = "matrix"} : () -> !2x1x4
        %p = "anec.matmul"(%x, %w) : (!4x1x2, !2x1x4) -> !4x1x4 loc("p")
        %v = "anec.reshape"(%p) {shape = [1, 1, 1, 4, 4]} : (!4x1x4) -> !1x4x4 loc("p")
        %b = "anec.const_in"() {weight = "bias"} : () -> !1x1x4
        %a = "anec.add"(%b, %v) : (!1x1x4, !1x4x4) -> !1x4x4 loc("a")
        "anec.live_out"(%a) {names = ["a"]} : (!1x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x2
        %w = "anec.const_in"() {weight = "matrix"} : () -> !2x1x4
        %b = "anec.const_in"() {weight = "bias"} : () -> !1x1x4 loc("a")
        %p = "anec.matmul"(%x, %w, %b) : (!4x1x2, !2x1x4, !1x1x4) -> !4x1x4 loc(fused["p", "a"])
        %v = "anec.reshape"(%p) {shape = [1, 1, 1, 4, 4]} : (!4x1x4) -> !1x4x4 loc(fused["p", "a"])
        "anec.live_out"(%v) {names = ["a"]} : (!1x4x4) -> ()
        """,
        weights={"matrix": np.arange(8.0).reshape(2, 4), "bias": [1.0, 2.0, 3.0, 4.0]},
    ),
    Case(
        "bias-into-products",
        "a number for each row is no bias of a product, and a product that two read keeps its value",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x2
        %w = "anec.const_in"() {weight = "matrix"} : () -> !2x1x4
        %b = "anec.const_in"() {weight = "bias"} : () -> !4x1x1
        %c = "anec.const_in"() {weight = "bias"} : () -> !1x1x4
        %p = "anec.matmul"(%x, %w) : (!4x1x2, !2x1x4) -> !4x1x4
        %q = "anec.matmul"(%x, %w) : (!4x1x2, !2x1x4) -> !4x1x4
        %a = "anec.add"(%p, %b) : (!4x1x4, !4x1x1) -> !4x1x4
        %d = "anec.sub"(%q, %c) : (!4x1x4, !1x1x4) -> !4x1x4
        %e = "anec.add"(%q, %d) : (!4x1x4, !4x1x4) -> !4x1x4
        "anec.live_out"(%a, %e) {names = ["a", "e"]} : (!4x1x4, !4x1x4) -> ()
        """,
        weights={"matrix": np.arange(8.0).reshape(2, 4), "bias": [1.0, 2.0, 3.0, 4.0]},
    ),
    Case(
        "share-moves",
        "two that turn one value alike are one; another order or source is another move",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x3x4
        %a = "anec.transpose"(%x) {transpose_list = [[2, 4], [4, 2]]} : (!2x3x4) -> !4x3x2 loc("a")
        %b = "anec.transpose"(%x) {transpose_list = [[2, 4], [4, 2]]} : (!2x3x4) -> !4x3x2 loc("b")
        %c = "anec.transpose"(%x) {transpose_list = [[2, 3], [3, 2]]} : (!2x3x4) -> !3x2x4
        %r = "anec.add"(%a, %b) : (!4x3x2, !4x3x2) -> !4x3x2
        "anec.live_out"(%r, %c) {names = ["r", "c"]} : (!4x3x2, !3x2x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x3x4
        %a = "anec.transpose"(%x) {transpose_list = [[2, 4], [4, 2]]} : (!2x3x4) -> !4x3x2 loc("a")
        %c = "anec.transpose"(%x) {transpose_list = [[2, 3], [3, 2]]} : (!2x3x4) -> !3x2x4
        %r = "anec.add"(%a, %a) : (!4x3x2, !4x3x2) -> !4x3x2
        "anec.live_out"(%r, %c) {names = ["r", "c"]} : (!4x3x2, !3x2x4) -> ()
        """,
    ),
    Case(
        "sink-moves",
        "a view behind a product goes behind its activation or single gain, and stays where nothing hosts them",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x2
        %w = "anec.const_in"() {weight = "matrix"} : () -> !2x1x4
        %p = "anec.matmul"(%x, %w) : (!4x1x2, !2x1x4) -> !4x1x4 loc("p")
        %v = "anec.reshape"(%p) {shape = [1, 1, 1, 4, 4]} : (!4x1x4) -> !1x4x4 loc("p")
        %h = "anec.const_in"() {weight = "half"} : () -> !1x1x1
        %s = "anec.mult"(%v, %h) : (!1x4x4, !1x1x1) -> !1x4x4 loc("s")
        %r = "anec.reshape"(%x) {shape = [1, 1, 1, 4, 2]} : (!4x1x2) -> !1x4x2
        %t = "anec.tanh"(%r) : (!1x4x2) -> !1x4x2
        "anec.live_out"(%s, %t) {names = ["s", "t"]} : (!1x4x4, !1x4x2) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x2
        %w = "anec.const_in"() {weight = "matrix"} : () -> !2x1x4
        %p = "anec.matmul"(%x, %w) : (!4x1x2, !2x1x4) -> !4x1x4 loc("p")
        %h = "anec.const_in"() {weight = "half"} : () -> !1x1x1
        %s = "anec.mult"(%p, %h) : (!4x1x4, !1x1x1) -> !4x1x4 loc("s")
        %v = "anec.reshape"(%s) {shape = [1, 1, 1, 4, 4]} : (!4x1x4) -> !1x4x4 loc(fused["p", "s"])
        %r = "anec.reshape"(%x) {shape = [1, 1, 1, 4, 2]} : (!4x1x2) -> !1x4x2
        %t = "anec.tanh"(%r) : (!1x4x2) -> !1x4x2
        "anec.live_out"(%v, %t) {names = ["s", "t"]} : (!1x4x4, !1x4x2) -> ()
        """,
        weights={"matrix": np.arange(8.0).reshape(2, 4), "half": [0.5]},
    ),
    Case(
        "sink-moves",
        "a transpose moves behind an activation, but not before rows that only a transpose may read",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x3x4
        %a = "anec.transpose"(%x) {transpose_list = [[2, 3], [3, 2]]} : (!2x3x4) -> !3x2x4 loc("a")
        %b = "anec.clamped_relu"(%a) {max_val = 2.0, min_val = -2.0} : (!3x2x4) -> !3x2x4 loc("b")
        %l = "anec.live_in"() {name = "l"} : () -> !1x1x16385
        %c = "anec.transpose"(%l) {transpose_list = [[2, 4], [4, 2]]} : (!1x1x16385) -> !16385x1x1
        %d = "anec.relu"(%c) : (!16385x1x1) -> !16385x1x1
        "anec.live_out"(%b, %d) {names = ["b", "d"]} : (!3x2x4, !16385x1x1) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x3x4
        %b = "anec.clamped_relu"(%x) {max_val = 2.0, min_val = -2.0} : (!2x3x4) -> !2x3x4 loc("b")
        %a = "anec.transpose"(%b) {transpose_list = [[2, 3], [3, 2]]} : (!2x3x4) -> !3x2x4 loc(fused["a", "b"])
        %l = "anec.live_in"() {name = "l"} : () -> !1x1x16385
        %c = "anec.transpose"(%l) {transpose_list = [[2, 4], [4, 2]]} : (!1x1x16385) -> !16385x1x1
        %d = "anec.relu"(%c) : (!16385x1x1) -> !16385x1x1
        "anec.live_out"(%a, %d) {names = ["b", "d"]} : (!3x2x4, !16385x1x1) -> ()
        """,
    ),
    Case(
        "sink-moves",
        "nor before a depth that only a transpose may read",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x20000x2x1x1
        %a = "anec.transpose"(%x) {transpose_list = [[1, 2], [2, 1]]} : (!1x20000x2x1x1) -> !1x2x20000x1x1
        %b = "anec.relu"(%a) : (!1x2x20000x1x1) -> !1x2x20000x1x1
        "anec.live_out"(%b) {names = ["y"]} : (!1x2x20000x1x1) -> ()
        """,
    ),
    Case(
        "fold-batch-norm",
        "gamma / sqrt(variance + epsilon) and beta - mean * gain",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %g = "anec.const_in"() {weight = "gamma"} : () -> !2x1x1
        %b = "anec.const_in"() {weight = "beta"} : () -> !2x1x1
        %m = "anec.const_in"() {weight = "mean"} : () -> !2x1x1
        %v = "anec.const_in"() {weight = "variance"} : () -> !2x1x1
        %y = "anec.batch_norm"(%x, %g, %b, %m, %v) {epsilon = 0.25}
             : (!2x4x4, !2x1x1, !2x1x1, !2x1x1, !2x1x1) -> !2x4x4 loc("y")
        "anec.live_out"(%y) {names = ["y"]} : (!2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %s = "anec.const_in"() {weight = "$gain"} : () -> !2x1x1 loc("y")
        %o = "anec.const_in"() {weight = "$offset"} : () -> !2x1x1 loc("y")
        %y = "anec.gain_offset_control"(%x, %s, %o) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4 loc("y")
        "anec.live_out"(%y) {names = ["y"]} : (!2x4x4) -> ()
        """,
        weights={"gamma": [4.0, 3.0], "beta": [1.0, 1.0], "mean": [1.0, 2.0], "variance": [3.75, 8.75]},
        made={"gain": [2.0, 1.0], "offset": [-1.0, -1.0]},
    ),
    Case(
        "fold-batch-norm",
        "live statistics and a gain beyond fp16 stay",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %l = "anec.live_in"() {name = "l"} : () -> !2x1x1
        %c = "anec.const_in"() {weight = "large"} : () -> !2x1x1
        %s = "anec.const_in"() {weight = "small"} : () -> !2x1x1
        %y = "anec.batch_norm"(%x, %s, %s, %l, %s) {epsilon = 0.0}
             : (!2x4x4, !2x1x1, !2x1x1, !2x1x1, !2x1x1) -> !2x4x4
        %z = "anec.batch_norm"(%y, %c, %s, %s, %s) {epsilon = 0.0}
             : (!2x4x4, !2x1x1, !2x1x1, !2x1x1, !2x1x1) -> !2x4x4
        "anec.live_out"(%z) {names = ["z"]} : (!2x4x4) -> ()
        """,
        weights={"large": [60000.0, 1.0], "small": [0.25, 0.25]},
    ),
    Case(
        "fold-batch-norm",
        "one gain for all channels and an offset for each",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %g = "anec.const_in"() {weight = "one"} : () -> !1x1x1
        %b = "anec.const_in"() {weight = "each"} : () -> !2x1x1
        %y = "anec.batch_norm"(%x, %g, %b, %b, %g) {epsilon = 0.0}
             : (!2x4x4, !1x1x1, !2x1x1, !2x1x1, !1x1x1) -> !2x4x4
        "anec.live_out"(%y) {names = ["y"]} : (!2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %s = "anec.const_in"() {weight = "$gain"} : () -> !2x1x1
        %o = "anec.const_in"() {weight = "$offset"} : () -> !2x1x1
        %y = "anec.gain_offset_control"(%x, %s, %o) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4
        "anec.live_out"(%y) {names = ["y"]} : (!2x4x4) -> ()
        """,
        weights={"one": [4.0], "each": [1.0, 2.0]},
        made={"gain": [2.0, 2.0], "offset": [-1.0, -2.0]},
    ),
    Case(
        "constants-to-gain-offset",
        "a constant on either side becomes a gain and an offset; a row of constants and two live operands stay",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %c = "anec.const_in"() {weight = "each"} : () -> !2x1x1
        %s = "anec.const_in"() {weight = "one"} : () -> !1x1x1
        %r = "anec.const_in"() {weight = "row"} : () -> !1x1x4
        %a = "anec.mult"(%x, %s) : (!2x4x4, !1x1x1) -> !2x4x4 loc("a")
        %b = "anec.add"(%c, %a) : (!2x1x1, !2x4x4) -> !2x4x4 loc("b")
        %d = "anec.sub"(%c, %b) : (!2x1x1, !2x4x4) -> !2x4x4 loc("d")
        %e = "anec.sub"(%d, %c) : (!2x4x4, !2x1x1) -> !2x4x4 loc("e")
        %f = "anec.add"(%e, %r) : (!2x4x4, !1x1x4) -> !2x4x4 loc("f")
        %g = "anec.add"(%f, %x) : (!2x4x4, !2x4x4) -> !2x4x4 loc("g")
        "anec.live_out"(%g) {names = ["y"]} : (!2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %r = "anec.const_in"() {weight = "row"} : () -> !1x1x4
        %g0 = "anec.const_in"() {weight = "$half"} : () -> !1x1x1 loc("a")
        %o0 = "anec.const_in"() {weight = "$zero"} : () -> !1x1x1 loc("a")
        %a = "anec.gain_offset_control"(%x, %g0, %o0) : (!2x4x4, !1x1x1, !1x1x1) -> !2x4x4 loc("a")
        %g1 = "anec.const_in"() {weight = "$ones"} : () -> !2x1x1 loc("b")
        %o1 = "anec.const_in"() {weight = "$each"} : () -> !2x1x1 loc("b")
        %b = "anec.gain_offset_control"(%a, %g1, %o1) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4 loc("b")
        %g2 = "anec.const_in"() {weight = "$minus"} : () -> !2x1x1 loc("d")
        %o2 = "anec.const_in"() {weight = "$each"} : () -> !2x1x1 loc("d")
        %d = "anec.gain_offset_control"(%b, %g2, %o2) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4 loc("d")
        %g3 = "anec.const_in"() {weight = "$ones"} : () -> !2x1x1 loc("e")
        %o3 = "anec.const_in"() {weight = "$less"} : () -> !2x1x1 loc("e")
        %e = "anec.gain_offset_control"(%d, %g3, %o3) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4 loc("e")
        %f = "anec.add"(%e, %r) : (!2x4x4, !1x1x4) -> !2x4x4 loc("f")
        %g = "anec.add"(%f, %x) : (!2x4x4, !2x4x4) -> !2x4x4 loc("g")
        "anec.live_out"(%g) {names = ["y"]} : (!2x4x4) -> ()
        """,
        weights={"each": [2.0, 3.0], "one": [0.5], "row": [1.0, 2.0, 3.0, 4.0]},
        made={
            "half": [0.5],
            "zero": [0.0],
            "ones": [1.0, 1.0],
            "each": [2.0, 3.0],
            "minus": [-1.0, -1.0],
            "less": [-2.0, -3.0],
        },
    ),
    Case(
        "merge-gain-offset",
        "a gain and then an offset are one unit; a second gain stays behind it",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %g = "anec.const_in"() {weight = "gain"} : () -> !1x1x1
        %z = "anec.const_in"() {weight = "zero"} : () -> !1x1x1
        %i = "anec.const_in"() {weight = "ones"} : () -> !2x1x1
        %o = "anec.const_in"() {weight = "offset"} : () -> !2x1x1
        %a = "anec.gain_offset_control"(%x, %g, %z) : (!2x4x4, !1x1x1, !1x1x1) -> !2x4x4 loc("a")
        %b = "anec.gain_offset_control"(%a, %i, %o) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4 loc("b")
        %c = "anec.gain_offset_control"(%b, %g, %z) : (!2x4x4, !1x1x1, !1x1x1) -> !2x4x4 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %g = "anec.const_in"() {weight = "gain"} : () -> !1x1x1
        %z = "anec.const_in"() {weight = "zero"} : () -> !1x1x1
        %s = "anec.const_in"() {weight = "$gain"} : () -> !2x1x1 loc(fused["a", "b"])
        %o = "anec.const_in"() {weight = "$offset"} : () -> !2x1x1 loc(fused["a", "b"])
        %b = "anec.gain_offset_control"(%x, %s, %o) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4 loc(fused["a", "b"])
        %c = "anec.gain_offset_control"(%b, %g, %z) : (!2x4x4, !1x1x1, !1x1x1) -> !2x4x4 loc("c")
        "anec.live_out"(%c) {names = ["y"]} : (!2x4x4) -> ()
        """,
        weights={"gain": [0.5], "zero": [0.0], "ones": [1.0, 1.0], "offset": [2.0, 3.0]},
        made={"gain": [0.5, 0.5], "offset": [2.0, 3.0]},
    ),
    Case(
        "gates-to-swish",
        "x * sigmoid(x) is one table from H17 on (C77); the sigmoid of another value stays",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %a = "anec.sigmoid"(%x) : (!2x4x4) -> !2x4x4 loc("a")
        %b = "anec.mult"(%x, %a) : (!2x4x4, !2x4x4) -> !2x4x4 loc("b")
        %c = "anec.sigmoid"(%b) : (!2x4x4) -> !2x4x4 loc("c")
        %d = "anec.mult"(%c, %x) : (!2x4x4, !2x4x4) -> !2x4x4 loc("d")
        "anec.live_out"(%d) {names = ["d"]} : (!2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %b = "anec.swish"(%x) : (!2x4x4) -> !2x4x4 loc(fused["a", "b"])
        %c = "anec.sigmoid"(%b) : (!2x4x4) -> !2x4x4 loc("c")
        %d = "anec.mult"(%c, %x) : (!2x4x4, !2x4x4) -> !2x4x4 loc("d")
        "anec.live_out"(%d) {names = ["d"]} : (!2x4x4) -> ()
        """,
        chip="h17",
    ),
    Case(
        "gates-to-swish",
        "and two layers before that",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %a = "anec.sigmoid"(%x) : (!2x4x4) -> !2x4x4 loc("a")
        %b = "anec.mult"(%x, %a) : (!2x4x4, !2x4x4) -> !2x4x4 loc("b")
        %c = "anec.sigmoid"(%b) : (!2x4x4) -> !2x4x4 loc("c")
        %d = "anec.mult"(%c, %x) : (!2x4x4, !2x4x4) -> !2x4x4 loc("d")
        "anec.live_out"(%d) {names = ["d"]} : (!2x4x4) -> ()
        """,
        chip="h16",
    ),
    Case(
        "merge-activations",
        "clamps meet, abs twice is once; clamps that exclude each other, a second reader and two tanh stay",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %a = "anec.clamped_relu"(%x) {max_val = 6.0, min_val = -1.0} : (!2x4x4) -> !2x4x4 loc("a")
        %b = "anec.relu"(%a) : (!2x4x4) -> !2x4x4 loc("b")
        %c = "anec.abs"(%b) : (!2x4x4) -> !2x4x4 loc("c")
        %d = "anec.abs"(%c) : (!2x4x4) -> !2x4x4 loc("d")
        %e = "anec.clamped_relu"(%x) {max_val = -1.0, min_val = -2.0} : (!2x4x4) -> !2x4x4
        %f = "anec.relu"(%e) : (!2x4x4) -> !2x4x4
        %g = "anec.tanh"(%f) : (!2x4x4) -> !2x4x4
        %h = "anec.tanh"(%g) : (!2x4x4) -> !2x4x4
        %i = "anec.n_relu"(%x) {max_val = 1.0} : (!2x4x4) -> !2x4x4
        %j = "anec.n_relu"(%i) {max_val = 0.5} : (!2x4x4) -> !2x4x4
        "anec.live_out"(%d, %h, %i, %j) {names = ["d", "h", "i", "j"]} : (!2x4x4, !2x4x4, !2x4x4, !2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %b = "anec.n_relu"(%x) {max_val = 6.0} : (!2x4x4) -> !2x4x4 loc(fused["a", "b"])
        %c = "anec.abs"(%b) : (!2x4x4) -> !2x4x4 loc("c")
        %e = "anec.clamped_relu"(%x) {max_val = -1.0, min_val = -2.0} : (!2x4x4) -> !2x4x4
        %f = "anec.relu"(%e) : (!2x4x4) -> !2x4x4
        %g = "anec.tanh"(%f) : (!2x4x4) -> !2x4x4
        %h = "anec.tanh"(%g) : (!2x4x4) -> !2x4x4
        %i = "anec.n_relu"(%x) {max_val = 1.0} : (!2x4x4) -> !2x4x4
        %j = "anec.n_relu"(%i) {max_val = 0.5} : (!2x4x4) -> !2x4x4
        "anec.live_out"(%c, %h, %i, %j) {names = ["d", "h", "i", "j"]} : (!2x4x4, !2x4x4, !2x4x4, !2x4x4) -> ()
        """,
    ),
    Case(
        "hoist-through-concat",
        "an affine and an activation move onto both layers, each with its share; an input among the parts keeps them",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4 loc("a")
        %b = "anec.max_pool"(%x) {ksize = [1, 1, 1], padding = [0, 0, 0, 0, 0, 0], stride = [1, 1, 1]}
             : (!2x4x4) -> !2x4x4 loc("b")
        %c = "anec.concat"(%a, %b) {axis = 2} : (!2x4x4, !2x4x4) -> !4x4x4 loc("c")
        %s = "anec.const_in"() {weight = "scale"} : () -> !4x1x1
        %o = "anec.const_in"() {weight = "zero"} : () -> !1x1x1
        %g = "anec.gain_offset_control"(%c, %s, %o) : (!4x4x4, !4x1x1, !1x1x1) -> !4x4x4 loc("g")
        %r = "anec.relu"(%g) : (!4x4x4) -> !4x4x4 loc("r")
        %d = "anec.convolution"(%x, %k) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %e = "anec.concat"(%d, %x) {axis = 2} : (!2x4x4, !2x4x4) -> !4x4x4
        %f = "anec.relu"(%e) : (!4x4x4) -> !4x4x4
        "anec.live_out"(%r, %f) {names = ["r", "f"]} : (!4x4x4, !4x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4 loc("a")
        %b = "anec.max_pool"(%x) {ksize = [1, 1, 1], padding = [0, 0, 0, 0, 0, 0], stride = [1, 1, 1]}
             : (!2x4x4) -> !2x4x4 loc("b")
        %o = "anec.const_in"() {weight = "zero"} : () -> !1x1x1
        %s0 = "anec.const_in"() {weight = "$first"} : () -> !2x1x1
        %s1 = "anec.const_in"() {weight = "$second"} : () -> !2x1x1
        %g0 = "anec.gain_offset_control"(%a, %s0, %o) : (!2x4x4, !2x1x1, !1x1x1) -> !2x4x4 loc("g")
        %g1 = "anec.gain_offset_control"(%b, %s1, %o) : (!2x4x4, !2x1x1, !1x1x1) -> !2x4x4 loc("g")
        %r0 = "anec.relu"(%g0) : (!2x4x4) -> !2x4x4 loc("r")
        %r1 = "anec.relu"(%g1) : (!2x4x4) -> !2x4x4 loc("r")
        %c = "anec.concat"(%r0, %r1) {axis = 2} : (!2x4x4, !2x4x4) -> !4x4x4 loc("c")
        %d = "anec.convolution"(%x, %k) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %e = "anec.concat"(%d, %x) {axis = 2} : (!2x4x4, !2x4x4) -> !4x4x4
        %f = "anec.relu"(%e) : (!4x4x4) -> !4x4x4
        "anec.live_out"(%c, %f) {names = ["r", "f"]} : (!4x4x4, !4x4x4) -> ()
        """,
        weights={"kernel": KERNEL, "scale": [1.0, 2.0, 3.0, 4.0], "zero": [0.0]},
        made={"first": [1.0, 2.0], "second": [3.0, 4.0]},
    ),
    Case(
        "fold-gain-into-weights",
        "into the rows of an fp16 kernel or the scale of a stored one, unless the convolution has another reader",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %b = "anec.const_in"() {weight = "bias"} : () -> !2x1x1
        %s = "anec.const_in"() {weight = "scale"} : () -> !2x1x1
        %o = "anec.const_in"() {weight = "offset"} : () -> !1x1x1
        %a = "anec.convolution"(%x, %k, %b) {#unit} : (!2x4x4, !2x1x2x1x1, !2x1x1) -> !2x4x4 loc("a")
        %g = "anec.gain_offset_control"(%a, %s, %o) : (!2x4x4, !2x1x1, !1x1x1) -> !2x4x4 loc("g")
        %q = "anec.const_in"() {weight = "bytes"} : () -> !2x1x2x1x1xsi8
        %p = "anec.convolution"(%x, %q) {#unit, kernel_scale = "step"} : (!2x4x4, !2x1x2x1x1xsi8) -> !2x4x4 loc("p")
        %i = "anec.gain_offset_control"(%p, %s, %o) : (!2x4x4, !2x1x1, !1x1x1) -> !2x4x4 loc("i")
        %c = "anec.convolution"(%x, %k) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %h = "anec.gain_offset_control"(%c, %s, %o) : (!2x4x4, !2x1x1, !1x1x1) -> !2x4x4
        "anec.live_out"(%g, %i, %c, %h) {names = ["g", "i", "c", "h"]} : (!2x4x4, !2x4x4, !2x4x4, !2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %s = "anec.const_in"() {weight = "scale"} : () -> !2x1x1
        %o = "anec.const_in"() {weight = "offset"} : () -> !1x1x1
        %j = "anec.const_in"() {weight = "$rows"} : () -> !2x1x2x1x1 loc(fused["a", "g"])
        %b = "anec.const_in"() {weight = "$bias"} : () -> !2x1x1 loc(fused["a", "g"])
        %a = "anec.convolution"(%x, %j, %b) {#unit} : (!2x4x4, !2x1x2x1x1, !2x1x1) -> !2x4x4 loc(fused["a", "g"])
        %q = "anec.const_in"() {weight = "bytes"} : () -> !2x1x2x1x1xsi8
        %d = "anec.const_in"() {weight = "$offset"} : () -> !2x1x1 loc(fused["p", "i"])
        %p = "anec.convolution"(%x, %q, %d) {#unit, kernel_scale = "$steps"}
             : (!2x4x4, !2x1x2x1x1xsi8, !2x1x1) -> !2x4x4 loc(fused["p", "i"])
        %c = "anec.convolution"(%x, %k) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %h = "anec.gain_offset_control"(%c, %s, %o) : (!2x4x4, !2x1x1, !1x1x1) -> !2x4x4
        "anec.live_out"(%a, %p, %c, %h) {names = ["g", "i", "c", "h"]} : (!2x4x4, !2x4x4, !2x4x4, !2x4x4) -> ()
        """,
        weights={
            "kernel": KERNEL,
            "bias": [10.0, 20.0],
            "scale": [2.0, 4.0],
            "offset": [1.0],
            "bytes": KERNEL,
            "step": 0.5,
        },
        made={
            "rows": KERNEL * [[[[2.0]]], [[[4.0]]]],
            "bias": [21.0, 81.0],
            "offset": [1.0, 1.0],
            "steps": [1.0, 2.0],
        },
    ),
    Case(
        "fold-gain-into-weights",
        "a gain that takes the kernel beyond fp16 stays",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "large"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %s = "anec.const_in"() {weight = "four"} : () -> !2x1x1
        %g = "anec.gain_offset_control"(%a, %s, %s) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4
        "anec.live_out"(%g) {names = ["y"]} : (!2x4x4) -> ()
        """,
        weights={"large": KERNEL * 8192, "four": [4.0, 4.0]},
    ),
    Case(
        "fold-gain-into-weights",
        "and so does one that takes it below",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "small"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %s = "anec.const_in"() {weight = "tiny"} : () -> !2x1x1
        %g = "anec.gain_offset_control"(%a, %s, %s) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4
        "anec.live_out"(%g) {names = ["y"]} : (!2x4x4) -> ()
        """,
        weights={"small": KERNEL * 2.0**-14, "tiny": [2.0**-14, 2.0**-14]},
    ),
    Case(
        "label-layers",
        "slots in their order; a slot that is past, a second live operand and attention open layers",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %s = "anec.const_in"() {weight = "scale"} : () -> !2x1x1
        %a = "anec.convolution"(%x, %k) {#unit} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %b = "anec.tanh"(%a) : (!2x4x4) -> !2x4x4
        %c = "anec.gain_offset_control"(%b, %s, %s) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4
        %d = "anec.relu"(%c) : (!2x4x4) -> !2x4x4
        %e = "anec.transpose"(%d) {transpose_list = [[3, 4], [4, 3]]} : (!2x4x4) -> !2x4x4
        %f = "anec.gain_offset_control"(%e, %s, %s) : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4
        %g = "anec.add"(%f, %x) : (!2x4x4, !2x4x4) -> !2x4x4
        %h = "anec.quant"(%g) {scale = 0.5, to = "si8", zero_point = 0} : (!2x4x4) -> !2x4x4xsi8
        %n = "anec.const_in"() {weight = "one"} : () -> !1x1x1
        %i = "anec.sdpa"(%x, %x, %x, %n) : (!2x4x4, !2x4x4, !2x4x4, !1x1x1) -> !2x4x4
        %j = "anec.relu"(%i) : (!2x4x4) -> !2x4x4
        "anec.live_out"(%h, %j) {names = ["h", "j"]} : (!2x4x4xsi8, !2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %s = "anec.const_in"() {weight = "scale"} : () -> !2x1x1
        %a = "anec.convolution"(%x, %k) {#unit, L0} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %b = "anec.tanh"(%a) {L0.pre_activation} : (!2x4x4) -> !2x4x4
        %c = "anec.gain_offset_control"(%b, %s, %s) {L0.goc} : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4
        %d = "anec.relu"(%c) {L0.post_activation} : (!2x4x4) -> !2x4x4
        %e = "anec.transpose"(%d) {L0.transpose, transpose_list = [[3, 4], [4, 3]]} : (!2x4x4) -> !2x4x4
        %f = "anec.gain_offset_control"(%e, %s, %s) {L1} : (!2x4x4, !2x1x1, !2x1x1) -> !2x4x4
        %g = "anec.add"(%f, %x) {L2} : (!2x4x4, !2x4x4) -> !2x4x4
        %h = "anec.quant"(%g) {L2.quant, scale = 0.5, to = "si8", zero_point = 0} : (!2x4x4) -> !2x4x4xsi8
        %n = "anec.const_in"() {weight = "one"} : () -> !1x1x1
        %i = "anec.sdpa"(%x, %x, %x, %n) {L3} : (!2x4x4, !2x4x4, !2x4x4, !1x1x1) -> !2x4x4
        %j = "anec.relu"(%i) {L4} : (!2x4x4) -> !2x4x4
        "anec.live_out"(%h, %j) {names = ["h", "j"]} : (!2x4x4xsi8, !2x4x4) -> ()
        """,
        weights={"kernel": KERNEL, "scale": [2.0, 4.0], "one": [1.0]},
    ),
    Case(
        "carry-layouts",
        "a sum and a norm between convolutions take their layout; a slice along the width stays where it clamps (N18)",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x3
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit} : (!2x1x3, !2x1x2x1x1) -> !2x1x3
        %b = "anec.transpose"(%a) {transpose_list = [[2, 4], [4, 2]]} : (!2x1x3) -> !3x1x2
        %p = "anec.const_in"() {weight = "plane"} : () -> !3x1x2
        %c = "anec.add"(%b, %p) : (!3x1x2, !3x1x2) -> !3x1x2 loc("sum")
        %g = "anec.const_in"() {weight = "gain"} : () -> !1x1x2
        %d = "anec.layer_norm"(%c, %g) {axes = [4], epsilon = 0.5} : (!3x1x2, !1x1x2) -> !3x1x2 loc("norm")
        %e = "anec.transpose"(%d) {transpose_list = [[2, 4], [4, 2]]} : (!3x1x2) -> !2x1x3
        %f = "anec.convolution"(%e, %k) {#unit} : (!2x1x3, !2x1x2x1x1) -> !2x1x3
        %h = "anec.transpose"(%f) {transpose_list = [[2, 4], [4, 2]]} : (!2x1x3) -> !3x1x2
        %i = "anec.input_view"(%h) {dimension = 4, offset = 1, size = 1, step = 1} : (!3x1x2) -> !3x1x1
        "anec.live_out"(%i) {names = ["y"]} : (!3x1x1) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x3
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit} : (!2x1x3, !2x1x2x1x1) -> !2x1x3
        %p = "anec.const_in"() {weight = "$turned"} : () -> !2x1x3
        %c = "anec.add"(%a, %p) : (!2x1x3, !2x1x3) -> !2x1x3 loc("sum")
        %g = "anec.const_in"() {weight = "gain"} : () -> !2x1x1
        %d = "anec.layer_norm"(%c, %g) {axes = [2], epsilon = 0.5} : (!2x1x3, !2x1x1) -> !2x1x3 loc("norm")
        %f = "anec.convolution"(%d, %k) {#unit} : (!2x1x3, !2x1x2x1x1) -> !2x1x3
        %h = "anec.transpose"(%f) {transpose_list = [[2, 4], [4, 2]]} : (!2x1x3) -> !3x1x2
        %i = "anec.input_view"(%h) {dimension = 4, offset = 1, size = 1, step = 1} : (!3x1x2) -> !3x1x1
        "anec.live_out"(%i) {names = ["y"]} : (!3x1x1) -> ()
        """,
        weights={"kernel": KERNEL, "plane": np.arange(6.0).reshape(3, 2), "gain": [2.0, 4.0]},
        made={"turned": np.arange(6.0).reshape(3, 2).T.reshape(-1)},
    ),
    Case(
        "carry-layouts",
        "an epilogue stays with its layer, and a sum over two axes where it is",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x3
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit} : (!2x1x3, !2x1x2x1x1) -> !2x1x3
        %b = "anec.tanh"(%a) : (!2x1x3) -> !2x1x3
        %c = "anec.transpose"(%b) {transpose_list = [[2, 4], [4, 2]]} : (!2x1x3) -> !3x1x2
        %d = "anec.reduce_sum"(%c) {axes = [2, 4]} : (!3x1x2) -> !1x1x1
        "anec.live_out"(%d) {names = ["y"]} : (!1x1x1) -> ()
        """,
        weights={"kernel": KERNEL},
    ),
    Case(
        "straighten-moves",
        "heads behind a product: what turns twice turns once, in front of the view; a product's operand turns last",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x6
        %w = "anec.live_in"() {name = "w"} : () -> !6x1x6
        %a = "anec.matmul"(%x, %w) : (!4x1x6, !6x1x6) -> !4x1x6
        %b = "anec.reshape"(%a) {shape = [1, 1, 4, 2, 3]} : (!4x1x6) -> !4x2x3
        %c = "anec.transpose"(%b) {transpose_list = [[2, 3], [3, 2]]} : (!4x2x3) -> !2x4x3
        %d = "anec.transpose"(%c) {transpose_list = [[3, 4], [4, 3]]} : (!2x4x3) -> !2x3x4 loc("d")
        %e = "anec.transpose"(%x) {transpose_list = [[2, 4], [4, 2]]} : (!4x1x6) -> !6x1x4
        %f = "anec.reshape"(%e) {shape = [1, 1, 6, 2, 2]} : (!6x1x4) -> !6x2x2
        %g = "anec.transpose"(%f) {transpose_list = [[2, 4], [3, 2], [4, 3]]} : (!6x2x2) -> !2x6x2 loc("g")
        %h = "anec.transpose"(%w) {transpose_list = [[2, 4], [4, 2]]} : (!6x1x6) -> !6x1x6
        %i = "anec.transpose"(%h) {transpose_list = [[2, 4], [4, 2]]} : (!6x1x6) -> !6x1x6
        "anec.live_out"(%d, %g, %i) {names = ["d", "g", "i"]} : (!2x3x4, !2x6x2, !6x1x6) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !4x1x6
        %w = "anec.live_in"() {name = "w"} : () -> !6x1x6
        %a = "anec.matmul"(%x, %w) : (!4x1x6, !6x1x6) -> !4x1x6
        %t = "anec.transpose"(%a) {transpose_list = [[2, 4], [4, 2]]} : (!4x1x6) -> !6x1x4 loc("d")
        %d = "anec.reshape"(%t) {shape = [1, 1, 2, 3, 4]} : (!6x1x4) -> !2x3x4 loc("d")
        %e = "anec.transpose"(%x) {transpose_list = [[2, 4], [4, 2]]} : (!4x1x6) -> !6x1x4
        %f = "anec.reshape"(%e) {shape = [1, 1, 6, 2, 2]} : (!6x1x4) -> !6x2x2
        %g = "anec.transpose"(%f) {transpose_list = [[2, 4], [3, 2], [4, 3]]} : (!6x2x2) -> !2x6x2 loc("g")
        "anec.live_out"(%d, %g, %w) {names = ["d", "g", "i"]} : (!2x3x4, !2x6x2, !6x1x6) -> ()
        """,
    ),
    Case(
        "square-after-reduce",
        "0x494 is set: the reduction's layer squares, unless the sum has another reader",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x3
        %a = "anec.reduce_sum"(%x) {axes = [4], L0} : (!2x1x3) -> !2x1x1
        %b = "anec.mult"(%a, %a) {L1} : (!2x1x1, !2x1x1) -> !2x1x1
        %c = "anec.relu"(%b) {L1.post_activation} : (!2x1x1) -> !2x1x1
        %d = "anec.reduce_max"(%x) {axes = [4], L2} : (!2x1x3) -> !2x1x1
        %e = "anec.square"(%d) {L3} : (!2x1x1) -> !2x1x1
        "anec.live_out"(%c, %d, %e) {names = ["c", "d", "e"]} : (!2x1x1, !2x1x1, !2x1x1) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x3
        %a = "anec.reduce_sum"(%x) {axes = [4], L0} : (!2x1x3) -> !2x1x1
        %b = "anec.mult"(%a, %a) {L0.square} : (!2x1x1, !2x1x1) -> !2x1x1
        %c = "anec.relu"(%b) {L0.post_activation} : (!2x1x1) -> !2x1x1
        %d = "anec.reduce_max"(%x) {axes = [4], L2} : (!2x1x3) -> !2x1x1
        %e = "anec.square"(%d) {L3} : (!2x1x1) -> !2x1x1
        "anec.live_out"(%c, %d, %e) {names = ["c", "d", "e"]} : (!2x1x1, !2x1x1, !2x1x1) -> ()
        """,
        chip="h14",
    ),
    Case(
        "square-after-reduce",
        "0x494 is clear: two layers",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x3
        %a = "anec.reduce_sum"(%x) {axes = [4], L0} : (!2x1x3) -> !2x1x1
        %b = "anec.square"(%a) {L1} : (!2x1x1) -> !2x1x1
        "anec.live_out"(%b) {names = ["b"]} : (!2x1x1) -> ()
        """,
    ),
]
"""Every pass of phase 1."""


@pytest.mark.parametrize("case", parameters(FUSE))
def test_a_pass_of_phase_1(case):
    case.check()
