"""Every pass has a case by text; tables 22.1, 22.2 and 35.3 row by row.

The cases themselves stand in ``test_pass_texts_fuse``, ``_legalise`` and ``_place``, how they are checked in ``_kit``.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from seed_tables import TABLE_35_3
from test_pass_texts_fuse import FUSE
from test_pass_texts_kit import Case, after
from test_pass_texts_legalise import LEGALISE, PRODUCT, RESIZES, SLICES, STRIDES, TURN
from test_pass_texts_place import MEMORY, SCHEDULE

from aneforge.chips import all_targets, target
from aneforge.compiler.facts import facts_of
from aneforge.compiler.passes import PASSES
from aneforge.compiler.pipeline import CODE_PASSES, PHASES

TABLE = {1: FUSE, 2: LEGALISE, 3: SCHEDULE, 4: MEMORY}
CASES = [case for cases in TABLE.values() for case in cases]
NAMES = [each.name for each in all_targets(only_28=True)]


def passes_of(number):
    """The passes of a phase, by its number in table 22.1."""
    return list(PHASES.values())[number]


def test_every_pass_has_a_text():
    """A new pass fails here until it has a case; a case of a pass that is gone fails too."""
    assert {case.pass_name for case in CASES} == set(CODE_PASSES)


def test_every_pass_has_a_text_that_it_changes_or_refuses():
    """Near misses alone would pass for a pass that does nothing."""
    telling = {case.pass_name for case in CASES if case.after or case.refused}
    assert telling == set(CODE_PASSES)


@pytest.mark.parametrize("number", TABLE)
def test_the_cases_stand_with_their_phase(number):
    names = {case.pass_name for case in TABLE[number]}
    assert names == set(passes_of(number))
    assert {PASSES[name].phase for name in names} == {number}


# Table 22.1: four phases and their representative passes.

REPRESENTED = {
    "transpose fusion": ("collapse-transposes", "transposes-into-matmul", "sink-moves", "share-moves", "label-layers"),
    "bias and activation hoisting": (
        "bias-into-products",
        "constants-to-gain-offset",
        "merge-gain-offset",
        "merge-activations",
        "hoist-through-concat",
        "fold-gain-into-weights",
        "label-layers",
    ),
    "elementwise-copy elimination": ("drop-copies",),
    # Lowering lays everything out as NDCHW, so the rank is legal before phase 1; the extents are checked in phase 2.
    "dimension and rank legalization (rank <= 5)": ("check-extents",),
    "kernel-memory split": ("split-kernel-memory",),
    "multi-segment cuts": ("cut-segments",),
    # The table names it before the scheduler; both of a pair have to be scheduled (fusion.json), so it is behind.
    "parallel-execution discovery": ("discover-co-issue",),
    "greedy list scheduler": ("schedule-layers",),
    "partition emission": ("close-task-groups",),
    # The stride without conflicts is worked out by Footprint, which phase 3 measures with too; it is written here.
    "bank-conflict optimization": ("lay-out-buffers",),
    "pad optimization": ("fold-padding",),
    "width-concat": ("join-widths",),
    "weight packing": ("pack-kernels",),
}
"""What does here what the table names; none of them is in another phase than there."""
_NAMES = list(REPRESENTED)
TABLE_22_1 = {1: _NAMES[:3], 2: _NAMES[3:6], 3: _NAMES[6:9], 4: _NAMES[9:]}
"""The phases of the table with their representative passes, in its order."""


def test_table_22_1_has_four_phases():
    assert sum(map(len, TABLE_22_1.values())) == len(REPRESENTED)
    assert len(TABLE_22_1) == len(PHASES) - 1 == 4  # phase 0 stands before the seed's four


@pytest.mark.parametrize("phase", TABLE_22_1)
def test_table_22_1(phase):
    """The representative passes of a phase are done by passes that run in that phase, behind all of the one before."""
    places = {name: place for place, name in enumerate(CODE_PASSES)}
    done = {each for name in TABLE_22_1[phase] for each in REPRESENTED[name]}
    assert {PASSES[name].phase for name in done} == {phase}
    assert done <= set(passes_of(phase))
    earlier = [places[name] for number in range(1, phase) for name in passes_of(number)]
    assert max(earlier, default=-1) < min(places[name] for name in done)


# Table 22.2: the nine allocation types, all in one program.

ALLOCATIONS = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x2x8
        %r = "anec.state"() {L0, engine = "DMA", name = "cache", task_group = 0} : () -> !4x1x8
        %v = "anec.reshape"(%x) {L1, engine = "view", task_group = 0, shape = [1, 1, 4, 1, 8]} : (!2x2x8) -> !4x1x8
        %a = "anec.softmax"(%v) {L2, axes = [2], engine = "PE", task_group = 0} : (!4x1x8) -> !4x1x8
        %b = "anec.tanh"(%a) {L3, engine = "NE", task_group = 0} : (!4x1x8) -> !4x1x8
        %c = "anec.softmax"(%b) {L4, axes = [2], chained, engine = "PE", task_group = 0} : (!4x1x8) -> !4x1x8
        %d = "anec.square"(%c) {L5, engine = "PE", task_group = 0} : (!4x1x8) -> !4x1x8
        %e = "anec.transpose"(%d) {L6, chained, engine = "NE", task_group = 0, transpose_list = [[2, 3], [3, 2]]}
             : (!4x1x8) -> !1x4x8
        %f = "anec.transpose"(%e) {L7, engine = "NE", task_group = 0, transpose_list = [[2, 3], [3, 2]]}
             : (!1x4x8) -> !4x1x8
        %g = "anec.softmax"(%f) {L8, axes = [2], chained, engine = "PE", task_group = 0} : (!4x1x8) -> !4x1x8
        %w = "anec.ring_buffer_writer"(%g, %r) {L9, engine = "PE", offset = 0, task_group = 0}
             : (!4x1x8, !4x1x8) -> !4x1x8
        %y = "anec.softmax"(%w) {L10, axes = [2], engine = "PE", task_group = 0} : (!4x1x8) -> !4x1x8
        "anec.live_out"(%y) {names = ["y"]} : (!4x1x8) -> ()
"""
ALLOCATED = {
    "0": "allocation = 6",  # a ring
    "1": "allocation = 8",  # the caller's buffer under another shape
    "2": "allocation = 0",  # stays on chip
    "3": "allocation = 4, inside = 2",  # overwrites it
    "4": "allocation = 2",  # handed on to the next layer
    "5": "allocation = 5, inside = 4",  # which overwrites it
    "6": "allocation = 2",
    "7": "allocation = 3",  # and here which does not
    "8": "allocation = 2",
    # A ring that reads a chained result. Rings run on the DMA and chains on one engine, so no program that comes out
    # of phase 3 has it: the text says that this ring is written by the planar engine.
    "9": "allocation = 7, inside = 0",  # the ring itself, changed in its place
    "10": "allocation = 1",  # leaves the program
}


def test_table_22_2():
    """Each of the nine values for a result that has it."""
    expected = re.sub(r"\{L(\d+), ", lambda match: f"{{L{match[1]}, {ALLOCATED[match[1]]}, ", ALLOCATIONS)
    Case("assign-allocations", "all nine", ALLOCATIONS, expected).check()
    assert {int(value) for value in re.findall(r"allocation = (\d)", expected)} == set(range(9))


# Table 35.3: where two chips get different kernels for the same op.

STORED = """
        %x = "anec.live_in"() {name = "x"} : () -> !1x1x1024
        %w = "anec.const_in"() {weight = "matrix"} : () -> !1024x1x768
        %p = "anec.matmul"(%x, %w) : (!1x1x1024, !1024x1x768) -> !1x1x768
        "anec.live_out"(%p) {names = ["p"]} : (!1x1x768) -> ()
"""
MATRIX = np.arange(1024 * 768).reshape(1024, 768) % 3.0
LONG = """
        %x = "anec.live_in"() {name = "x"} : () -> !2x1x20000
        %a = "anec.transpose"(%x) {L0, transpose_list = [[2, 3], [3, 2]]} : (!2x1x20000) -> !1x2x20000
        "anec.live_out"(%a) {names = ["y"]} : (!1x2x20000) -> ()
"""


def known(name, text, chip):
    """The case of a pass for a text on a chip, from the tables of the phases."""
    (found,) = (case for case in CASES if (case.pass_name, case.before, case.chip) == (name, text, chip))
    return found


DIVERGENCE = {
    "width slice": [
        known("crop-slices", SLICES, "h13"),  # Q.4
        known("crop-slices", SLICES, "h17s"),
    ],
    "resize": [
        known("resize-strategies", RESIZES, "h13"),  # a deconvolution, and a product along an axis
        known("resize-strategies", RESIZES, "h14"),  # the texture engine
    ],
    "matmul": [
        Case(
            "products-to-convolutions",
            "1.5 MB are resident where the working set is 2 MB",
            STORED,
            """
            %x = "anec.live_in"() {name = "x"} : () -> !1x1x1024
            %a = "anec.transpose"(%x) {transpose_list = [[2, 4], [4, 2]]} : (!1x1x1024) -> !1024x1x1
            %w = "anec.const_in"() {weight = "$kernel"} : () -> !768x1x1024x1x1
            %c = "anec.convolution"(%a, %w) {#unit, padding_style = "EXPLICIT", weights_layout = "OIHW"}
                 : (!1024x1x1, !768x1x1024x1x1) -> !768x1x1
            %p = "anec.transpose"(%c) {transpose_list = [[2, 4], [4, 2]]} : (!768x1x1) -> !1x1x768
            "anec.live_out"(%p) {names = ["p"]} : (!1x1x768) -> ()
            """,
            weights={"matrix": MATRIX},
            made={"kernel": MATRIX.T.reshape(768, 1024, 1, 1)},
        ),
        Case("products-to-convolutions", "and tiled where it is 1 MB", STORED, chip="m9", weights={"matrix": MATRIX}),
        known("slice-products", PRODUCT, "h13"),
        known("slice-products", PRODUCT, "m9"),  # two slices along the height
    ],
    "transpose": [
        known("multi-pass-transposes", TURN, "h13"),  # native, in its slot
        known("multi-pass-transposes", TURN, "h12"),  # two passes
        Case("multi-pass-transposes", "20000 columns are native where the bound is 65536", LONG, chip="h17s"),
        Case(
            "multi-pass-transposes",
            "and an exchange by DMA where it is 16384",
            LONG,
            LONG.replace("{L0, ", '{L1, data_path = "dma", '),
        ),
    ],
    # Every published table has the factors 2, 3, 4 and 8, so strides are made alike on all targets.
    "strided convolution": [
        replace(known("large-strides", STRIDES, "h13"), chip=chip) for chip in ("h11", "h13", "h14", "h17s", "m9")
    ],
}
"""By category: cases in pairs of one text on two targets whose data differ; one text on many where none differ."""


def test_table_35_3_has_no_other_categories():
    assert [row["category"] for row in TABLE_35_3] == list(DIVERGENCE)


@pytest.mark.parametrize("category", DIVERGENCE)
def test_table_35_3(category):
    """The same text gives different text on two targets whose data differ, and equal text where they agree."""
    cases = DIVERGENCE[category]
    for case in cases:
        case.check()
    if category == "strided convolution":
        assert len({tuple(facts_of(target(name), ("factor_list",))["factor_list"]) for name in NAMES}) == 1
        assert len({tuple(text_on(case, case.chip)) for case in cases}) == 1
        return
    for one, two in zip(cases[::2], cases[1::2], strict=True):
        assert (one.pass_name, one.before) == (two.pass_name, two.before)
        reads = PASSES[one.pass_name].reads
        assert facts_of(target(one.chip), reads).signature != facts_of(target(two.chip), reads).signature
        assert text_on(one, one.chip) != text_on(two, two.chip)


@pytest.mark.parametrize("category", DIVERGENCE)
def test_equal_facts_give_equal_text(category):
    """On all 28 targets: what a pass makes of a text depends on the facts that it declares and on nothing else."""
    for case in {each.before: each for each in DIVERGENCE[category]}.values():
        found = {}
        for name in NAMES:
            facts = facts_of(target(name), PASSES[case.pass_name].reads).signature
            text = text_on(case, name)
            assert found.setdefault(facts, text) == text
        kinds = {tuple(text) for text in found.values()}
        assert (len(kinds) == 1) == (category == "strided convolution")


def text_on(case, chip):
    return after(case.pass_name, case.before, chip, case.weights)
