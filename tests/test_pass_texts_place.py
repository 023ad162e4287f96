"""Phases 3 and 4 by text: one pass at a time; what a pass needs of earlier ones stands in the text as labels."""

from __future__ import annotations

import numpy as np
import pytest
from test_pass_texts_kit import Case, parameters

KERNEL = np.arange(1.0, 5.0).reshape(2, 2, 1, 1)
TALL = np.arange(1.0, 37.0).reshape(2, 2, 3, 3)

CHAINS = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit, L0, engine = "NE"} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %b = "anec.convolution"(%a, %k) {#unit, L1, engine = "NE"} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %c = "anec.softmax"(%b) {L2, axes = [2], engine = "PE"} : (!2x4x4) -> !2x4x4
        %d = "anec.mult"(%c, %x) {L3, engine = "PE"} : (!2x4x4, !2x4x4) -> !2x4x4
        %e = "anec.abs"(%d) {L4, engine = "PE"} : (!2x4x4) -> !2x4x4
        "anec.live_out"(%d, %e) {names = ["d", "e"]} : (!2x4x4, !2x4x4) -> ()
"""


# 2100 rows of 1024 bytes: two tiles of 1050 rows.
TILES = """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2100x512
        %o = "anec.const_in"() {weight = "one"} : () -> !1x1x1x1x1
        %t = "anec.const_in"() {weight = "three"} : () -> !1x1x1x3x1
        %a = "anec.convolution"(%x, %o) {#unit, L0, engine = "NE"} : (!1x2100x512, !1x1x1x1x1) -> !1x2100x512
        %b = "anec.convolution"(%a, %t) {L1, dilation_rates = [1, 1, 1], engine = "NE",
             explicit_padding = [0, 0, 1, 1, 0, 0], groups = 1, kernel_sizes = [1, 3, 1], strides = [1, 1, 1]}
             : (!1x2100x512, !1x1x1x3x1) -> !1x2100x512
        %c = "anec.convolution"(%b, %o) {#unit, L2, engine = "NE"} : (!1x2100x512, !1x1x1x1x1) -> !1x2100x512
        "anec.live_out"(%c) {names = ["y"]} : (!1x2100x512) -> ()
"""

HEADS = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x4
        %y = "anec.live_in"() {name = "y"} : () -> !2x1x4
        %a = "anec.matmul"(%x, %x) {L0, engine = "NE", transpose_rhs} : (!2x1x4, !2x1x4) -> !2x1x2
        %b = "anec.softmax"(%a) {L1, axes = [4], engine = "PE"} : (!2x1x2) -> !2x1x2
        %c = "anec.matmul"(%b, %x) {L2, engine = "NE"} : (!2x1x2, !2x1x4) -> !2x1x4
        %d = "anec.matmul"(%y, %y) {L3, engine = "NE", transpose_rhs} : (!2x1x4, !2x1x4) -> !2x1x2
        %e = "anec.softmax"(%d) {L4, axes = [4], engine = "PE"} : (!2x1x2) -> !2x1x2
        %f = "anec.matmul"(%e, %y) {L5, engine = "NE"} : (!2x1x2, !2x1x4) -> !2x1x4
        "anec.live_out"(%c, %f) {names = ["c", "f"]} : (!2x1x4, !2x1x4) -> ()
"""


def diamond(rows):
    """A split, a branch through one row that stands first, and one through a map of so many rows."""
    return f"""
        %x = "anec.live_in"() {{name = "x"}} : () -> !1x{rows}x252
        %k = "anec.const_in"() {{weight = "kernel"}} : () -> !1x1x1x1x1
        %a = "anec.reduce_max"(%x) {{L0, axes = [3], engine = "PE"}} : (!1x{rows}x252) -> !1x1x252
        %b = "anec.abs"(%a) {{L1, engine = "PE"}} : (!1x1x252) -> !1x1x252
        %c = "anec.tile"(%a) {{L2, engine = "DMA", multiples = [1, 1, 1, {rows}, 1]}} : (!1x1x252) -> !1x{rows}x252
        %d = "anec.convolution"(%b, %k) {{#unit, L3, engine = "NE"}} : (!1x1x252, !1x1x1x1x1) -> !1x1x252
        %e = "anec.reduce_max"(%c) {{L4, axes = [3], engine = "PE"}} : (!1x{rows}x252) -> !1x1x252
        %f = "anec.add"(%d, %e) {{L5, engine = "PE"}} : (!1x1x252, !1x1x252) -> !1x1x252
        "anec.live_out"(%f) {{names = ["y"]}} : (!1x1x252) -> ()
    """


SCHEDULE = [
    Case(
        "assign-engines",
        "by the first op of a layer; a renaming of equal rows is a view, of others or of a port given out a copy",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x8
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit, L0} : (!2x4x8, !2x1x2x1x1) -> !2x4x8
        %b = "anec.tanh"(%a) {L0.post_activation} : (!2x4x8) -> !2x4x8
        %c = "anec.softmax"(%b) {L1, axes = [2]} : (!2x4x8) -> !2x4x8
        %d = "anec.reshape"(%c) {L2, shape = [1, 1, 8, 1, 8]} : (!2x4x8) -> !8x1x8
        %e = "anec.reshape"(%d) {L3, shape = [1, 1, 4, 4, 4]} : (!8x1x8) -> !4x4x4
        %f = "anec.transpose"(%e) {L4, transpose_list = [[2, 3], [3, 2]]} : (!4x4x4) -> !4x4x4
        %g = "anec.transpose"(%f) {L5, data_path = "dma", transpose_list = [[2, 3], [3, 2]]} : (!4x4x4) -> !4x4x4
        %h = "anec.resize"(%g) {L6, height = 4, data_path = "texture", sampling_methods = "Linear",
             sampling_modes = "Default", width = 4} : (!4x4x4) -> !4x4x4
        %i = "anec.reshape"(%x) {L7, shape = [1, 1, 8, 1, 8]} : (!2x4x8) -> !8x1x8
        "anec.live_out"(%h, %i) {names = ["h", "i"]} : (!4x4x4, !8x1x8) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x8
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %a = "anec.convolution"(%x, %k) {#unit, L0, engine = "NE"} : (!2x4x8, !2x1x2x1x1) -> !2x4x8
        %b = "anec.tanh"(%a) {L0.post_activation} : (!2x4x8) -> !2x4x8
        %c = "anec.softmax"(%b) {L1, axes = [2], engine = "PE"} : (!2x4x8) -> !2x4x8
        %d = "anec.reshape"(%c) {L2, engine = "view", shape = [1, 1, 8, 1, 8]} : (!2x4x8) -> !8x1x8
        %e = "anec.reshape"(%d) {L3, engine = "DMA", shape = [1, 1, 4, 4, 4]} : (!8x1x8) -> !4x4x4
        %f = "anec.transpose"(%e) {L4, engine = "NE", transpose_list = [[2, 3], [3, 2]]} : (!4x4x4) -> !4x4x4
        %g = "anec.transpose"(%f) {L5, engine = "DMA", data_path = "dma", transpose_list = [[2, 3], [3, 2]]}
             : (!4x4x4) -> !4x4x4
        %h = "anec.resize"(%g) {L6, engine = "TE", height = 4, data_path = "texture", sampling_methods = "Linear",
             sampling_modes = "Default", width = 4} : (!4x4x4) -> !4x4x4
        %i = "anec.reshape"(%x) {L7, engine = "DMA", shape = [1, 1, 8, 1, 8]} : (!2x4x8) -> !8x1x8
        "anec.live_out"(%h, %i) {names = ["h", "i"]} : (!4x4x4, !8x1x8) -> ()
        """,
        weights={"kernel": KERNEL},
    ),
    Case(
        "schedule-layers",
        "the larger branch runs first and to its end, a constant stands before its reader",
        diamond(8),
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x8x252
        %a = "anec.reduce_max"(%x) {L0, axes = [3], engine = "PE"} : (!1x8x252) -> !1x1x252
        %c = "anec.tile"(%a) {L2, engine = "DMA", multiples = [1, 1, 1, 8, 1]} : (!1x1x252) -> !1x8x252
        %e = "anec.reduce_max"(%c) {L4, axes = [3], engine = "PE"} : (!1x8x252) -> !1x1x252
        %b = "anec.abs"(%a) {L1, engine = "PE"} : (!1x1x252) -> !1x1x252
        %k = "anec.const_in"() {weight = "kernel"} : () -> !1x1x1x1x1
        %d = "anec.convolution"(%b, %k) {#unit, L3, engine = "NE"} : (!1x1x252, !1x1x1x1x1) -> !1x1x252
        %f = "anec.add"(%d, %e) {L5, engine = "PE"} : (!1x1x252, !1x1x252) -> !1x1x252
        "anec.live_out"(%f) {names = ["y"]} : (!1x1x252) -> ()
        """,
        weights={"kernel": [[[[2.0]]]]},
    ),
    Case(
        "schedule-layers",
        "one that exceeds the working set has no preference",
        diamond(2100),  # 2100 rows of 512 bytes, and m9 has 1 MB
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2100x252
        %a = "anec.reduce_max"(%x) {L0, axes = [3], engine = "PE"} : (!1x2100x252) -> !1x1x252
        %b = "anec.abs"(%a) {L1, engine = "PE"} : (!1x1x252) -> !1x1x252
        %k = "anec.const_in"() {weight = "kernel"} : () -> !1x1x1x1x1
        %d = "anec.convolution"(%b, %k) {#unit, L3, engine = "NE"} : (!1x1x252, !1x1x1x1x1) -> !1x1x252
        %c = "anec.tile"(%a) {L2, engine = "DMA", multiples = [1, 1, 1, 2100, 1]} : (!1x1x252) -> !1x2100x252
        %e = "anec.reduce_max"(%c) {L4, axes = [3], engine = "PE"} : (!1x2100x252) -> !1x1x252
        %f = "anec.add"(%d, %e) {L5, engine = "PE"} : (!1x1x252, !1x1x252) -> !1x1x252
        "anec.live_out"(%f) {names = ["y"]} : (!1x1x252) -> ()
        """,
        chip="m9",
        weights={"kernel": [[[[2.0]]]]},
    ),
    Case(
        "discover-chains",
        "neighbours on one engine; not across engines, and not what a second reader or the caller wants",
        CHAINS,
        CHAINS.replace("{#unit, L0, ", "{#unit, L0, chained, ").replace("{L2, ", "{L2, chained, "),
        weights={"kernel": KERNEL},
    ),
    Case(
        "discover-chains",
        "a window over two tiles reads a row of the second, so what it reads is not chained; what reads it is",
        TILES,
        TILES.replace("{L1, ", "{L1, chained, "),
        weights={"one": [[[[2.0]]]], "three": [[[[1.0], [2.0], [3.0]]]]},
    ),
    Case("discover-chains", "no chip below A13 chains", CHAINS, chip="h11", weights={"kernel": KERNEL}),
    Case(
        "discover-co-issue",
        "the product of the second head moves beside the softmax of the first, which does not read it",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x4
        %y = "anec.live_in"() {name = "y"} : () -> !2x1x4
        %a = "anec.matmul"(%x, %x) {L0, engine = "NE", transpose_rhs} : (!2x1x4, !2x1x4) -> !2x1x2
        %b = "anec.softmax"(%a) {L1, axes = [4], engine = "PE"} : (!2x1x2) -> !2x1x2
        %c = "anec.matmul"(%b, %x) {L2, engine = "NE"} : (!2x1x2, !2x1x4) -> !2x1x4
        %d = "anec.matmul"(%y, %y) {L3, engine = "NE", transpose_rhs} : (!2x1x4, !2x1x4) -> !2x1x2
        %e = "anec.softmax"(%d) {L4, axes = [4], engine = "PE"} : (!2x1x2) -> !2x1x2
        "anec.live_out"(%c, %e) {names = ["c", "e"]} : (!2x1x4, !2x1x2) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x4
        %y = "anec.live_in"() {name = "y"} : () -> !2x1x4
        %a = "anec.matmul"(%x, %x) {L0, engine = "NE", transpose_rhs} : (!2x1x4, !2x1x4) -> !2x1x2
        %b = "anec.softmax"(%a) {L1, axes = [4], co_issue = 3, engine = "PE"} : (!2x1x2) -> !2x1x2
        %d = "anec.matmul"(%y, %y) {L3, co_issue = 1, engine = "NE", transpose_rhs} : (!2x1x4, !2x1x4) -> !2x1x2
        %c = "anec.matmul"(%b, %x) {L2, engine = "NE"} : (!2x1x2, !2x1x4) -> !2x1x4
        %e = "anec.softmax"(%d) {L4, axes = [4], engine = "PE"} : (!2x1x2) -> !2x1x2
        "anec.live_out"(%c, %e) {names = ["c", "e"]} : (!2x1x4, !2x1x2) -> ()
        """,
    ),
    Case(
        "discover-co-issue",
        "not what is chained, and not two results that both leave the chip",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x4
        %y = "anec.live_in"() {name = "y"} : () -> !2x1x4
        %a = "anec.softmax"(%x) {L0, axes = [2], chained, engine = "PE"} : (!2x1x4) -> !2x1x4
        %b = "anec.abs"(%a) {L1, engine = "PE"} : (!2x1x4) -> !2x1x4
        %c = "anec.tanh"(%y) {L2, engine = "NE"} : (!2x1x4) -> !2x1x4
        %d = "anec.softmax"(%y) {L3, axes = [2], engine = "PE"} : (!2x1x4) -> !2x1x4
        "anec.live_out"(%b, %c, %d) {names = ["b", "c", "d"]} : (!2x1x4, !2x1x4, !2x1x4) -> ()
        """,
    ),
    Case(
        "discover-co-issue",
        "what has moved makes its reader ready: the softmax of the second head beside the last product of the first",
        HEADS,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x4
        %y = "anec.live_in"() {name = "y"} : () -> !2x1x4
        %a = "anec.matmul"(%x, %x) {L0, engine = "NE", transpose_rhs} : (!2x1x4, !2x1x4) -> !2x1x2
        %b = "anec.softmax"(%a) {L1, axes = [4], co_issue = 3, engine = "PE"} : (!2x1x2) -> !2x1x2
        %d = "anec.matmul"(%y, %y) {L3, co_issue = 1, engine = "NE", transpose_rhs} : (!2x1x4, !2x1x4) -> !2x1x2
        %c = "anec.matmul"(%b, %x) {L2, co_issue = 4, engine = "NE"} : (!2x1x2, !2x1x4) -> !2x1x4
        %e = "anec.softmax"(%d) {L4, axes = [4], co_issue = 2, engine = "PE"} : (!2x1x2) -> !2x1x2
        %f = "anec.matmul"(%e, %y) {L5, engine = "NE"} : (!2x1x2, !2x1x4) -> !2x1x4
        "anec.live_out"(%c, %f) {names = ["c", "f"]} : (!2x1x4, !2x1x4) -> ()
        """,
    ),
    Case(
        "discover-co-issue",
        "two results above the budget both stream",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x3900x252
        %a = "anec.tanh"(%x) {L0, engine = "NE"} : (!1x3900x252) -> !1x3900x252
        %b = "anec.abs"(%x) {L1, engine = "PE"} : (!1x3900x252) -> !1x3900x252
        %c = "anec.max"(%a, %b) {L2, engine = "PE"} : (!1x3900x252, !1x3900x252) -> !1x3900x252
        "anec.live_out"(%c) {names = ["y"]} : (!1x3900x252) -> ()
        """,
    ),
    Case(
        "close-task-groups",
        "two maps of 1 MB do not fit 15/16 of 2 MB: the second opens a task group and the chain into it is cut",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2000x252
        %k = "anec.const_in"() {weight = "kernel"} : () -> !1x1x1x1x1
        %a = "anec.convolution"(%x, %k) {#unit, L0, chained, engine = "NE"}
             : (!1x2000x252, !1x1x1x1x1) -> !1x2000x252
        %b = "anec.convolution"(%a, %k) {#unit, L1, engine = "NE"} : (!1x2000x252, !1x1x1x1x1) -> !1x2000x252
        %c = "anec.reduce_max"(%b) {L2, axes = [3], chained, engine = "PE"} : (!1x2000x252) -> !1x1x252
        %d = "anec.reduce_max"(%c) {L3, axes = [4], engine = "PE"} : (!1x1x252) -> !1x1x1
        "anec.live_out"(%d) {names = ["y"]} : (!1x1x1) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2000x252
        %k = "anec.const_in"() {weight = "kernel"} : () -> !1x1x1x1x1
        %a = "anec.convolution"(%x, %k) {#unit, L0, engine = "NE", task_group = 0}
             : (!1x2000x252, !1x1x1x1x1) -> !1x2000x252
        %b = "anec.convolution"(%a, %k) {#unit, L1, engine = "NE", task_group = 1}
             : (!1x2000x252, !1x1x1x1x1) -> !1x2000x252
        %c = "anec.reduce_max"(%b) {L2, axes = [3], chained, engine = "PE", task_group = 1} : (!1x2000x252) -> !1x1x252
        %d = "anec.reduce_max"(%c) {L3, axes = [4], engine = "PE", task_group = 1} : (!1x1x252) -> !1x1x1
        "anec.live_out"(%d) {names = ["y"]} : (!1x1x1) -> ()
        """,
        weights={"kernel": [[[[2.0]]]]},
    ),
    Case(
        "close-task-groups",
        "a segment opens one, and two results that do not fit together are issued one after the other",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2000x252
        %a = "anec.tanh"(%x) {L0, co_issue = 1, engine = "NE", segment = 0} : (!1x2000x252) -> !1x2000x252
        %b = "anec.abs"(%x) {L1, co_issue = 0, engine = "PE", segment = 0} : (!1x2000x252) -> !1x2000x252
        %c = "anec.max"(%a, %b) {L2, engine = "PE", segment = 0} : (!1x2000x252, !1x2000x252) -> !1x2000x252
        %d = "anec.reduce_max"(%c) {L3, axes = [3], engine = "PE", segment = 1} : (!1x2000x252) -> !1x1x252
        "anec.live_out"(%d) {names = ["y"]} : (!1x1x252) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x2000x252
        %a = "anec.tanh"(%x) {L0, engine = "NE", task_group = 0, segment = 0} : (!1x2000x252) -> !1x2000x252
        %b = "anec.abs"(%x) {L1, engine = "PE", task_group = 1, segment = 0} : (!1x2000x252) -> !1x2000x252
        %c = "anec.max"(%a, %b) {L2, engine = "PE", task_group = 1, segment = 0}
             : (!1x2000x252, !1x2000x252) -> !1x2000x252
        %d = "anec.reduce_max"(%c) {L3, axes = [3], engine = "PE", task_group = 2, segment = 1}
             : (!1x2000x252) -> !1x1x252
        "anec.live_out"(%d) {names = ["y"]} : (!1x1x252) -> ()
        """,
    ),
]
"""Every pass of phase 3."""

JOINS = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x2x8
        %y = "anec.live_in"() {name = "y"} : () -> !2x2x4
        %a = "anec.softmax"(%x) {L0, axes = [2], engine = "PE", task_group = 0} : (!2x2x8) -> !2x2x8
        %b = "anec.softmax"(%y) {L1, axes = [2], engine = "PE", task_group = 0} : (!2x2x4) -> !2x2x4
        %c = "anec.concat"(%a, %b) {L2, axis = 4, engine = "DMA", task_group = 0} : (!2x2x8, !2x2x4) -> !2x2x12
        %d = "anec.softmax"(%y) {L3, axes = [2], engine = "PE", task_group = 0} : (!2x2x4) -> !2x2x4
        %e = "anec.softmax"(%x) {L4, axes = [2], engine = "PE", task_group = 0} : (!2x2x8) -> !2x2x8
        %f = "anec.concat"(%d, %e) {L5, axis = 4, engine = "DMA", task_group = 0} : (!2x2x4, !2x2x8) -> !2x2x12
        %g = "anec.max"(%c, %f) {L6, engine = "PE", task_group = 0} : (!2x2x12, !2x2x12) -> !2x2x12
        "anec.live_out"(%g) {names = ["y"]} : (!2x2x12) -> ()
"""
FIRST_JOIN = (
    JOINS.replace("{L0, ", "{L0, inside = 2, ")
    .replace("{L1, ", "{L1, inside = 2, ")
    .replace('{L2, axis = 4, engine = "DMA"', '{L2, axis = 4, engine = "view"')
)

TEXTURED = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %g = "anec.const_in"() {weight = "grid"} : () -> !2x4x4
        %s = "anec.softmax"(%x) {L0, axes = [2], engine = "PE", task_group = 0} : (!2x4x4) -> !2x4x4
        %a = "anec.add"(%s, %x) {L1, engine = "PE", task_group = 0} : (!2x4x4, !2x4x4) -> !2x4x4
        %r = "anec.resample"(%a, %g) {L1.texture, background_value = 0.0, coordinate_mode = "NonNormalized",
             sampling_method = "Linear", sampling_mode = "Default"} : (!2x4x4, !2x4x4) -> !2x4x4
        %y = "anec.softmax"(%r) {L2, axes = [2], engine = "PE", task_group = 0} : (!2x4x4) -> !2x4x4
        "anec.live_out"(%y) {names = ["y"]} : (!2x4x4) -> ()
"""

KERNELS = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
        %b = "anec.const_in"() {weight = "bias"} : () -> !2x1x1
        %a = "anec.convolution"(%x, %k, %b) {#unit, L0, task_group = 0} : (!2x4x4, !2x1x2x1x1, !2x1x1) -> !2x4x4
        %s = "anec.const_in"() {weight = "shared"} : () -> !2x1x2x1x1
        %c = "anec.convolution"(%a, %s) {#unit, L1, task_group = 0} : (!2x4x4, !2x1x2x1x1) -> !2x4x4
        %d = "anec.convolution"(%c, %s) {L2, dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 0, 0],
             groups = 1, kernel_sizes = [1, 1, 1], task_group = 0, strides = [1, 2, 2]}
             : (!2x4x4, !2x1x2x1x1) -> !2x2x2
        "anec.live_out"(%d) {names = ["y"]} : (!2x2x2) -> ()
"""
ON_CHIP = KERNELS.replace("task_group = 0", 'task_group = 0, space = "l2"')


def packed(path, flow):
    """The same with 8 bytes of kernel laid out: a kernel that one reader cannot stream is folded for all."""
    text = KERNELS.replace('"kernel"}', f'"kernel", address = 0, kernel_bytes = 8, {path}, {flow}}}')
    text = text.replace('"bias"}', '"bias", address = 64, kernel_bytes = 4}')
    folded = f'"shared", address = 128, kernel_bytes = 8, {path}, weight_flow = "fold"}}'
    return text.replace('"shared"}', folded)


def spill(late, peak):
    """A map of 1000 KB beside one of 900 KB; one of 750 KB takes the first one's place, and then 260 KB more fit in
    sum but in no piece."""
    return f"""
        %w = "anec.live_in"() {{name = "w"}} : () -> !1x1800x252
        %x = "anec.live_in"() {{name = "x"}} : () -> !1x2000x252
        %v = "anec.live_in"() {{name = "v"}} : () -> !1x1500x252
        %z = "anec.live_in"() {{name = "z"}} : () -> !1x520x252
        %a = "anec.abs"(%w) {{L0, allocation = 0, engine = "PE", task_group = 0}} : (!1x1800x252) -> !1x1800x252
        %b = "anec.abs"(%x) {{L1, allocation = 0, engine = "PE", task_group = 0}} : (!1x2000x252) -> !1x2000x252
        %d = "anec.reduce_max"(%b) {{L2, allocation = 1, axes = [3, 4], engine = "PE", task_group = 0}}
             : (!1x2000x252) -> !1x1x1
        %c = "anec.square"(%v) {{L3, allocation = 0, engine = "PE", task_group = 0}} : (!1x1500x252) -> !1x1500x252
        %e = "anec.abs"(%z) {{L4, {late}, engine = "PE", task_group = 0}} : (!1x520x252) -> !1x520x252
        %f = "anec.reduce_max"(%e) {{L5, {peak}, axes = [3, 4], engine = "PE", task_group = 0}}
             : (!1x520x252) -> !1x1x1
        %g = "anec.add"(%a, %f) {{L6, allocation = 1, engine = "PE", task_group = 0}}
             : (!1x1800x252, !1x1x1) -> !1x1800x252
        %h = "anec.add"(%c, %f) {{L7, allocation = 1, engine = "PE", task_group = 0}}
             : (!1x1500x252, !1x1x1) -> !1x1500x252
        "anec.live_out"(%d, %g, %h) {{names = ["d", "g", "h"]}} : (!1x1x1, !1x1800x252, !1x1500x252) -> ()
"""


SPILLED = """
        %w = "anec.live_in"() {live = [0, 0], name = "w", channel_stride = 921600, row_stride = 512,
             space = "port"} : () -> !1x1800x252
        %x = "anec.live_in"() {live = [0, 1], name = "x", channel_stride = 1024000, row_stride = 512,
             space = "port"} : () -> !1x2000x252
        %v = "anec.live_in"() {live = [0, 3], name = "v", channel_stride = 768000, row_stride = 512,
             space = "port"} : () -> !1x1500x252
        %z = "anec.live_in"() {live = [0, 4], name = "z", channel_stride = 266240, row_stride = 512,
             space = "port"} : () -> !1x520x252
        %a = "anec.abs"(%w) {L0, address = 1024000, allocation = 0, engine = "PE", live = [0, 6], task_group = 0,
             channel_stride = 512, row_stride = 512, space = "l2"} : (!1x1800x252) -> !1x1800x252
        %b = "anec.abs"(%x) {L1, address = 0, allocation = 0, engine = "PE", live = [1, 2], task_group = 0,
             channel_stride = 512, row_stride = 512, space = "l2"} : (!1x2000x252) -> !1x2000x252
        %d = "anec.reduce_max"(%b) {L2, allocation = 1, axes = [3, 4], engine = "PE", live = [2, 2], task_group = 0,
             channel_stride = 64, row_stride = 64, space = "port"} : (!1x2000x252) -> !1x1x1
        %c = "anec.square"(%v) {L3, address = 0, allocation = 0, engine = "PE", live = [3, 7], task_group = 0,
             channel_stride = 512, row_stride = 512, space = "l2"} : (!1x1500x252) -> !1x1500x252
        %e = "anec.abs"(%z) {L4, address = 0, allocation = 1, engine = "PE", live = [4, 5], task_group = 0,
             channel_stride = 266240, row_stride = 512, space = "dram"} : (!1x520x252) -> !1x520x252
        %f = "anec.reduce_max"(%e) {L5, address = 768000, allocation = 0, axes = [3, 4], engine = "PE",
             live = [5, 7], task_group = 0, channel_stride = 16, row_stride = 16, space = "l2"}
             : (!1x520x252) -> !1x1x1
        %g = "anec.add"(%a, %f) {L6, allocation = 1, engine = "PE", live = [6, 6], task_group = 0,
             channel_stride = 921600, row_stride = 512,
             space = "port"} : (!1x1800x252, !1x1x1) -> !1x1800x252
        %h = "anec.add"(%c, %f) {L7, allocation = 1, engine = "PE", live = [7, 7], task_group = 0,
             channel_stride = 768000, row_stride = 512,
             space = "port"} : (!1x1500x252, !1x1x1) -> !1x1500x252
        "anec.live_out"(%d, %g, %h) {names = ["d", "g", "h"]} : (!1x1x1, !1x1800x252, !1x1500x252) -> ()
"""

MEMORY = [
    Case(
        "fold-padding",
        "zeros become the padding of the convolution; what was chained into the pad or issued beside it is so no more",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x3x3
        %s = "anec.tanh"(%x) {L0, chained, engine = "NE", task_group = 0} : (!2x4x4) -> !2x4x4
        %p = "anec.padding"(%s) {L1, background_value = 0.0, co_issue = 2, engine = "NE", padding_modes = "Zero",
             padding_sizes = [[0, 0], [0, 0], [0, 0], [1, 2], [0, 1]], task_group = 0} : (!2x4x4) -> !2x7x5 loc("p")
        %o = "anec.abs"(%x) {L2, co_issue = 1, engine = "PE", task_group = 0} : (!2x4x4) -> !2x4x4
        %a = "anec.convolution"(%p, %k) {L3, dilation_rates = [1, 1, 1], engine = "NE",
             explicit_padding = [0, 0, 0, 0, 1, 0], groups = 1, kernel_sizes = [1, 3, 3], task_group = 0,
             strides = [1, 1, 1]} : (!2x7x5, !2x1x2x3x3) -> !2x5x4 loc("a")
        "anec.live_out"(%o, %a) {names = ["o", "a"]} : (!2x4x4, !2x5x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x3x3
        %s = "anec.tanh"(%x) {L0, engine = "NE", task_group = 0} : (!2x4x4) -> !2x4x4
        %o = "anec.abs"(%x) {L2, engine = "PE", task_group = 0} : (!2x4x4) -> !2x4x4
        %a = "anec.convolution"(%s, %k) {L3, dilation_rates = [1, 1, 1], engine = "NE",
             explicit_padding = [0, 0, 1, 2, 1, 1], groups = 1, kernel_sizes = [1, 3, 3], task_group = 0,
             strides = [1, 1, 1]} : (!2x4x4, !2x1x2x3x3) -> !2x5x4 loc(fused["p", "a"])
        "anec.live_out"(%o, %a) {names = ["o", "a"]} : (!2x4x4, !2x5x4) -> ()
        """,
        weights={"kernel": TALL},
    ),
    Case(
        "fold-padding",
        "a maximum reads zeros as numbers, and another task group reads the padded map",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x3x3
        %p = "anec.padding"(%x) {L0, background_value = 0.0, engine = "NE", padding_modes = "Zero",
             padding_sizes = [[0, 0], [0, 0], [0, 0], [1, 1], [1, 1]], task_group = 0} : (!2x4x4) -> !2x6x6
        %m = "anec.max_pool"(%p) {L1, engine = "PE", ksize = [1, 3, 3], padding = [0, 0, 0, 0, 0, 0], task_group = 0,
             stride = [1, 1, 1]} : (!2x6x6) -> !2x4x4
        %q = "anec.padding"(%m) {L2, background_value = 0.0, engine = "NE", padding_modes = "Zero",
             padding_sizes = [[0, 0], [0, 0], [0, 0], [1, 1], [1, 1]], task_group = 0} : (!2x4x4) -> !2x6x6
        %a = "anec.convolution"(%q, %k) {L3, dilation_rates = [1, 1, 1], engine = "NE",
             explicit_padding = [0, 0, 0, 0, 0, 0], groups = 1, kernel_sizes = [1, 3, 3], task_group = 1,
             strides = [1, 1, 1]} : (!2x6x6, !2x1x2x3x3) -> !2x4x4
        "anec.live_out"(%a) {names = ["y"]} : (!2x4x4) -> ()
        """,
        weights={"kernel": TALL},
    ),
    Case(
        "fold-padding",
        "zeros as another channel are no padding of a convolution",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x4x4
        %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x3x3
        %p = "anec.padding"(%x) {L0, background_value = 0.0, engine = "NE", padding_modes = "Zero",
             padding_sizes = [[0, 0], [0, 0], [0, 1], [0, 0], [0, 0]], task_group = 0} : (!1x4x4) -> !2x4x4
        %a = "anec.convolution"(%p, %k) {L1, dilation_rates = [1, 1, 1], engine = "NE",
             explicit_padding = [0, 0, 0, 0, 0, 0], groups = 1, kernel_sizes = [1, 3, 3], task_group = 0,
             strides = [1, 1, 1]} : (!2x4x4, !2x1x2x3x3) -> !2x2x2
        "anec.live_out"(%a) {names = ["y"]} : (!2x2x2) -> ()
        """,
        weights={"kernel": TALL},
    ),
    Case(
        "join-widths",
        "operands that start on 16 bytes are written in place, one that starts at 8 is copied",
        JOINS,
        FIRST_JOIN,
    ),
    Case(
        "join-widths",
        "where the granule is one byte both are",
        JOINS,
        FIRST_JOIN.replace("{L3, ", "{L3, inside = 5, ")
        .replace("{L4, ", "{L4, inside = 5, ")
        .replace('{L5, axis = 4, engine = "DMA"', '{L5, axis = 4, engine = "view"'),
        chip="m9",
    ),
    Case(
        "assign-allocations",
        "a chain, its reader, a rewrite of what is read for the last time, and what leaves the program",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %a = "anec.softmax"(%x) {L0, axes = [2], chained, engine = "PE", task_group = 0} : (!2x4x4) -> !2x4x4
        %b = "anec.softmax"(%a) {L1, axes = [2], engine = "PE", task_group = 0} : (!2x4x4) -> !2x4x4
        %c = "anec.tanh"(%b) {L2, engine = "NE", task_group = 0} : (!2x4x4) -> !2x4x4
        %d = "anec.add"(%b, %c) {L3, engine = "PE", task_group = 0} : (!2x4x4, !2x4x4) -> !2x4x4
        %e = "anec.softmax"(%d) {L4, axes = [2], chained, engine = "PE", task_group = 0} : (!2x4x4) -> !2x4x4
        %f = "anec.abs"(%e) {L5, engine = "PE", task_group = 1} : (!2x4x4) -> !2x4x4
        "anec.live_out"(%f) {names = ["y"]} : (!2x4x4) -> ()
        """,
        """
        %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
        %a = "anec.softmax"(%x) {L0, allocation = 2, axes = [2], chained, engine = "PE", task_group = 0}
             : (!2x4x4) -> !2x4x4
        %b = "anec.softmax"(%a) {L1, allocation = 3, axes = [2], engine = "PE", task_group = 0} : (!2x4x4) -> !2x4x4
        %c = "anec.tanh"(%b) {L2, allocation = 0, engine = "NE", task_group = 0} : (!2x4x4) -> !2x4x4
        %d = "anec.add"(%b, %c) {L3, allocation = 4, engine = "PE", inside = 2, task_group = 0}
             : (!2x4x4, !2x4x4) -> !2x4x4
        %e = "anec.softmax"(%d) {L4, allocation = 1, axes = [2], engine = "PE", task_group = 0} : (!2x4x4) -> !2x4x4
        %f = "anec.abs"(%e) {L5, allocation = 1, engine = "PE", task_group = 1} : (!2x4x4) -> !2x4x4
        "anec.live_out"(%f) {names = ["y"]} : (!2x4x4) -> ()
        """,
    ),
    Case(
        "assign-allocations",
        "a layer that samples its own result elsewhere cannot rewrite in place",
        TEXTURED,
        TEXTURED.replace("{L0, ", "{L0, allocation = 0, ")
        .replace("{L1, ", "{L1, allocation = 0, ")
        .replace("{L2, ", "{L2, allocation = 1, "),
        chip="h14",
        weights={"grid": np.ones((1, 2, 4, 4))},
    ),
    Case(
        "dedicate-buffers",
        "a result up to the threshold of 32 KB, on chip",
        ON_CHIP.replace("!2x4x4", "!2x1025x4").replace("!2x2x2", "!2x513x2"),
        ON_CHIP.replace("!2x4x4", "!2x1025x4")
        .replace("!2x2x2", "!2x513x2")
        .replace("{#unit, L0, ", '{#unit, L0, buffer = "default", ')
        .replace("{#unit, L1, ", '{#unit, L1, buffer = "default", ')
        .replace("{L2, ", '{L2, buffer = "dedicated", '),
        chip="h15",
        weights={"kernel": KERNEL, "bias": [1.0, 2.0], "shared": KERNEL},
    ),
    Case(
        "dedicate-buffers",
        "and none where the threshold is zero",
        ON_CHIP,
        ON_CHIP.replace("L0, ", 'L0, buffer = "default", ')
        .replace("L1, ", 'L1, buffer = "default", ')
        .replace("L2, ", 'L2, buffer = "default", '),
        weights={"kernel": KERNEL, "bias": [1.0, 2.0], "shared": KERNEL},
    ),
    Case(
        "dedicate-buffers",
        "and none for a result in memory",
        ON_CHIP.replace('space = "l2"', 'space = "dram"'),
        ON_CHIP.replace('space = "l2"', 'space = "dram"')
        .replace("L0, ", 'L0, buffer = "default", ')
        .replace("L1, ", 'L1, buffer = "default", ')
        .replace("L2, ", 'L2, buffer = "default", '),
        chip="h15",
        weights={"kernel": KERNEL, "bias": [1.0, 2.0], "shared": KERNEL},
    ),
    Case(
        "lay-out-buffers",
        "rows of 1024 bytes begin on different banks, rewrites and pieces lie inside, and a place is taken again",
        """
        %x = "anec.live_in"() {name = "x"} : () -> !1x4x512
        %a = "anec.softmax"(%x) {L0, allocation = 0, axes = [3], engine = "PE", task_group = 0}
             : (!1x4x512) -> !1x4x512
        %b = "anec.abs"(%a) {L1, allocation = 4, engine = "PE", inside = 0, task_group = 0}
             : (!1x4x512) -> !1x4x512
        %c = "anec.reduce_max"(%b) {L2, allocation = 0, axes = [4], engine = "PE", task_group = 0}
             : (!1x4x512) -> !1x4x1
        %d = "anec.softmax"(%c) {L3, allocation = 0, axes = [3], engine = "PE", inside = 5,
             task_group = 0} : (!1x4x1) -> !1x4x1
        %e = "anec.tanh"(%c) {L4, allocation = 0, engine = "NE", inside = 5, task_group = 0}
             : (!1x4x1) -> !1x4x1
        %f = "anec.concat"(%d, %e) {L5, allocation = 0, axis = 2, engine = "view", task_group = 0}
             : (!1x4x1, !1x4x1) -> !2x4x1
        %g = "anec.softmax"(%f) {L6, allocation = 1, axes = [3], engine = "PE", task_group = 0} : (!2x4x1) -> !2x4x1
        "anec.live_out"(%g) {names = ["y"]} : (!2x4x1) -> ()
        """,
        """
        %x = "anec.live_in"() {live = [0, 0], name = "x", channel_stride = 4096, row_stride = 1024, space = "port"}
             : () -> !1x4x512
        %a = "anec.softmax"(%x) {L0, address = 0, allocation = 0, axes = [3], engine = "PE", live = [0, 2],
             task_group = 0, channel_stride = 1024, row_stride = 1056, space = "l2"} : (!1x4x512) -> !1x4x512
        %b = "anec.abs"(%a) {L1, address = 0, allocation = 4, buffer_offset = 0, engine = "PE", inside = 0,
             live = [0, 2], task_group = 0, channel_stride = 1024, row_stride = 1056, space = "l2"}
             : (!1x4x512) -> !1x4x512
        %c = "anec.reduce_max"(%b) {L2, address = 4224, allocation = 0, axes = [4], engine = "PE", live = [2, 4],
             task_group = 0, channel_stride = 16, row_stride = 16, space = "l2"} : (!1x4x512) -> !1x4x1
        %d = "anec.softmax"(%c) {L3, address = 0, allocation = 0, axes = [3], buffer_offset = 0, engine = "PE",
             inside = 5, live = [3, 6], task_group = 0, channel_stride = 16, row_stride = 32, space = "l2"}
             : (!1x4x1) -> !1x4x1
        %e = "anec.tanh"(%c) {L4, address = 16, allocation = 0, buffer_offset = 16, engine = "NE", inside = 5,
             live = [3, 6], task_group = 0, channel_stride = 16, row_stride = 32, space = "l2"} : (!1x4x1) -> !1x4x1
        %f = "anec.concat"(%d, %e) {L5, address = 0, allocation = 0, axis = 2, engine = "view", live = [3, 6],
             task_group = 0, channel_stride = 16, row_stride = 32, space = "l2"} : (!1x4x1, !1x4x1) -> !2x4x1
        %g = "anec.softmax"(%f) {L6, allocation = 1, axes = [3], engine = "PE", live = [6, 6], task_group = 0,
             channel_stride = 256, row_stride = 64, space = "port"} : (!2x4x1) -> !2x4x1
        "anec.live_out"(%g) {names = ["y"]} : (!2x4x1) -> ()
        """,
    ),
    Case(
        "lay-out-buffers",
        "what finds no hole on chip is streamed",
        spill("allocation = 0", "allocation = 0"),
        SPILLED,
    ),
    Case(
        "lay-out-buffers",
        "and then nothing is chained to it or depends on it",
        spill("allocation = 2, chained", "allocation = 3"),
        SPILLED,
    ),
    Case(
        "pack-kernels",
        "each once, built per core, streamed unless a reader has a stride",
        KERNELS,
        packed('kernel_path = "per core"', 'weight_flow = "stream"'),
        weights={"kernel": KERNEL, "bias": [1.0, 2.0], "shared": KERNEL + 1},
    ),
    Case(
        "pack-kernels",
        "shared from A14 on",
        KERNELS,
        packed('kernel_path = "shared"', 'weight_flow = "stream"'),
        chip="h14",
        weights={"kernel": KERNEL, "bias": [1.0, 2.0], "shared": KERNEL + 1},
    ),
    Case(
        "pack-kernels",
        "no stream below A13",
        KERNELS,
        packed('kernel_path = "per core"', 'weight_flow = "fold"'),
        chip="h12",
        weights={"kernel": KERNEL, "bias": [1.0, 2.0], "shared": KERNEL + 1},
    ),
]
"""Every pass of phase 4."""


@pytest.mark.parametrize("case", parameters(SCHEDULE))
def test_a_pass_of_phase_3(case):
    case.check()


@pytest.mark.parametrize("case", parameters(MEMORY))
def test_a_pass_of_phase_4(case):
    case.check()
