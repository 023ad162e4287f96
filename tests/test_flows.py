"""Which chips stream which stored weights, in which layers, and the kernel memory that follows."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.chips import all_targets, native_streams, store, target
from aneforge.chips.assumed import compile_fact
from aneforge.chips.families import Family
from aneforge.chips.hal import OLD_BUILD, hal_fields
from aneforge.chips.streams import LayerConditions
from aneforge.compiler.storage import flow_of, streamed_storages
from aneforge.errors import ArgumentError
from aneforge.graph.codecs.encoding import encode

SEED = {
    "OLDER": set(),
    "A13": {"int4", "sparse"},
    "A14": {"int4", "int8", "sparse"},
    "A15": {"int4", "int8", "sparse", "blockwise"},
    "A16": {"int4", "int8", "sparse", "blockwise"},
}
"""The seed page: which encodings stream on M1, on M2, and from M3 on."""
MODES = ("int4", "int8", "sparse", "blockwise")
FAMILIES = [chip for chip in all_targets(only_28=True) if chip.family5 is not None]
WEIGHT = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float16)


@pytest.mark.parametrize("chip", FAMILIES, ids=lambda chip: chip.name)
def test_the_seed_table_of_streams_and_folds(chip):
    family = Family(chip.family5).name
    assert {mode for mode in MODES if flow_of(chip, mode).streams} == SEED[family]
    assert native_streams(family) == SEED[family]
    assert {mode for mode in MODES if flow_of(chip, encode(WEIGHT, mode)).streams} == SEED[family]


@pytest.mark.parametrize("chip", FAMILIES, ids=lambda chip: chip.name)
def test_the_gates_of_the_hal_agree_with_the_measured_rows(chip):
    """Every byte of an encoding's gate is set where it streams, and one is clear where it folds (0x48f, 0x529 and the
    clusters of compression.json ``gate``); an unpublished cell is that of the table it is taken from."""
    short = {"int4_lut": "int4", "int8_affine": "int8"}
    for row in store.load("compression")["encodings"]:
        gates = [compile_fact(chip, hal_fields(OLD_BUILD).find(offset).name).value for offset in row["gate"]]
        assert all(gates) == flow_of(chip, short.get(row["name"], row["name"])).streams, row["name"]


def test_streamed_storages_are_those_that_stream():
    assert [form.encoding for form in streamed_storages(target("m1"))] == ["lut8", "lut4", "sparse"]
    assert [form.encoding for form in streamed_storages(target("m2"))] == ["int8", "lut8", "lut6", "lut4", "sparse"]
    assert streamed_storages(target("h11")) == ()


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (LayerConditions(unit_stride=False), "stride is not 1"),
        (LayerConditions(no_dilation=False), "dilated"),
        (LayerConditions(tiles_overlap=True), "tiles overlap"),
        (LayerConditions(immutable=False), "not a constant"),
    ],
)
def test_a_layer_that_breaks_a_condition_folds(layer, reason):
    """compression.json stream_conditions."""
    for encoding in (*MODES, None):
        flow = flow_of(target("m5"), encoding, layer)
        assert not flow.streams
        assert reason in flow.reason
        assert flow.evidence[0].confidence == "decoded"
        # Listing 35.2: what does not stream is built once for all cores from A14 on, and sized against the other cap.
        assert (flow_of(target("m1"), encoding, layer).cap, flow.cap) == (64 << 10, 16 << 20)
    assert compile_fact(target("m1"), "kmem_cap_dense").value == 64 << 10
    assert flow_of(target("m5"), "int4").cap == 16 << 20


def test_the_master_switches_everything_off():
    flow = flow_of(target("h11"), "int4")
    assert (flow.streams, flow.cap) == (False, 64 << 10)
    assert "0x48f" in flow.reason


@pytest.mark.parametrize(
    ("chip", "read"), [("m1", {4, 8}), ("m2", {2, 3, 4, 6, 8}), ("m5", {2, 3, 4, 6, 8}), ("m6", {2, 3, 4, 6, 8})]
)
def test_the_widths_of_indices(chip, read):
    for bits in (1, 2, 3, 4, 6, 8):
        for name in (f"lut{bits}", f"sparse-lut{bits}"):
            assert flow_of(target(chip), name).streams is (bits in read), name


def test_zero_points_come_with_h16():
    """N51: the M1 knows symmetric codes only, and the encoder of zero points is in H16 and later."""
    shifted = encode(WEIGHT, "int8", symmetric=False)
    assert [flow_of(target(chip), shifted).streams for chip in ("m1", "m2", "m3", "m4", "m5", "m6")] == [
        *(False, False, False),
        *(True, True, True),
    ]
    assert "zero points" in flow_of(target("m2"), shifted).reason


def test_floating_point_bytes_are_for_h18():
    assert {chip.name for chip in FAMILIES if flow_of(chip, "fp8-e4m3").streams} == {"h18"}
    assert "E4M3 only" in flow_of(target("h18"), "fp8-e5m2").reason  # U113
    assert "0x52d" in flow_of(target("m5"), "fp8-e4m3").reason


def test_vectors_and_several_tables_are_a_choice():
    vectors, tables = encode(WEIGHT, "lut4", vector_size=2), encode(WEIGHT, "lut4", group_size=8)
    assert [flow_of(target(chip), vectors).streams for chip in ("m5", "h18", "h19")] == [False, True, True]
    assert [flow_of(target(chip), tables).streams for chip in ("m5", "h18", "h19")] == [False, False, True]
    assert {known.conflict_id for known in flow_of(target("m5"), tables).evidence} == {"U114"}
    assert not flow_of(target("h18"), encode(WEIGHT[:30], "lut4", vector_size=5)).streams


def test_a_runtime_may_expand_or_refuse_what_the_chip_streams():
    m5, m6 = target("m5"), target("m6")
    assert not flow_of(m5, "int4", runtime="coreml").streams  # C55
    assert flow_of(m5, "int4", runtime="coreai").streams
    assert flow_of(m6, "int4", runtime="coreml").streams
    assert flow_of(m5, "int4-affine", runtime="coreml").streams
    for runtime in ("coreml", "coreai"):
        flow = flow_of(m5, "blockwise", runtime=runtime)
        assert not flow.streams
        assert flow.evidence[0].conflict_id == "C56"
        assert flow.evidence[0].confidence == "measured"
    assert flow_of(m5, "blockwise").streams  # C26: the direct route
    with pytest.raises(ArgumentError, match="'metal' is unknown; choose one: direct, coreml, coreai"):
        flow_of(m5, "int4", runtime="metal")


def test_unknown_names_are_refused():
    with pytest.raises(af.AneforgeError, match="not a weight encoding"):
        flow_of(target("m5"), "int5")


# Programs.


def conv(stride=1, dilation=1, side=16, form="int4", kernel=3):
    """64 inputs, which are two blocks: one block for each output would be int8 (N67)."""
    weight = np.random.default_rng(1).standard_normal((32, 64, kernel, kernel)).astype(np.float16) * np.float16(0.05)
    x = af.input((1, 64, side, side), name="x")
    return af.conv(x, encode(weight, form), stride=stride, dilation=dilation, pad=kernel // 2).named("y")


def stored(out, chip):
    (weight,) = (each for each in af.compile(out, target=chip).program.weights if each.flow is not None)
    return weight


@pytest.mark.parametrize("form", ["int4", "int8", "sparse", "blockwise", "sparse-lut4"])
def test_the_layer_decides_in_the_program_too(form):
    """Unit stride streams; stride, dilation and overlapping tiles fold (U24: maps of 2 MB and more)."""
    plain = stored(conv(form=form), "m5")
    assert plain.streams
    assert plain.encoding == encode(WEIGHT, form).name
    assert plain.folded_from is None
    for folding in (conv(2, form=form), conv(1, 2, form=form), conv(side=256, form=form)):
        weight = stored(folding, "m5")
        assert (weight.streams, weight.encoding, weight.folded_from) == (False, "fp16", plain.encoding)
        assert weight.stored_bytes == 2 * 32 * 64 * 9
    assert stored(conv(side=256, form=form, kernel=1), "m5").streams  # a kernel of one row never overlaps


def test_the_listing_and_the_file_of_a_program_say_what_folded():
    program = af.compile(conv(2), target="m1").program
    assert "folded from lut4" in str(program)
    (record,) = (record for record in program.to_json()["weights"] if record["flow"])
    assert (record["encoding"], record["folded_from"]) == ("fp16", "lut4")


@pytest.mark.parametrize("chip", ["m1", "m2", "m5", "h18"])
@pytest.mark.parametrize("form", ["int8", "int4", "lut6", "sparse", "sparse-lut4", "blockwise"])
def test_a_folded_form_is_the_dense_layer_with_its_decoded_weights(form, chip):
    """Bit for bit in the simulator, and to the same time in the cost model."""
    weight = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float16) * np.float16(0.1)
    encoded = encode(weight, form)
    x = af.input((4, 64), name="x")
    model = af.compile(x.linear(encoded), target=chip)
    dense = af.compile(x.linear(encoded.decode(np.float16)), target=chip)
    (kernel,) = model.program.weights
    np.testing.assert_array_equal(kernel.decode().reshape(64, 64), encoded.decode(np.float16))
    if not flow_of(target(chip), encoded).streams:
        data = np.random.default_rng(3).standard_normal((4, 64))
        np.testing.assert_array_equal(model(data).view(np.uint32), dense(data).view(np.uint32))
        assert model.estimate().us == dense.estimate().us
        assert kernel.encoding == "fp16"
    else:
        assert kernel.encoding == encoded.name


def test_codes_on_both_sides_stay_in_a_layer_of_stride_two():
    """U116: they are what the engine multiplies."""
    x = af.input((1, 32, 16, 16), name="x")
    codes = np.random.default_rng(1).integers(-127, 128, (32, 32, 3, 3)).astype(np.int8)
    weight = af.Encoded.affine(codes, np.full(32, 0.01), axis=0)
    quantised = af.dequantize(af.quantize(x, 0.05), 0.05)
    assert stored(af.conv(quantised, weight, stride=2, pad=1), "m5").encoding == "int8"
    assert stored(af.conv(x, weight, stride=2, pad=1), "m5").encoding == "fp16"


@pytest.mark.parametrize(
    ("outputs", "form", "layers"),
    [
        (1024, None, 1),  # 8192 inputs of fp16: 16 MB
        (1040, None, 2),
        (2048, "int8", 1),  # 16 MB of codes
        (2064, "int8", 2),
        (4096, "sparse", 1),  # 64 MB of fp16, 4 MB of mask and hardly any survivors
    ],
)
def test_a_streamed_weight_is_sized_in_its_own_form(outputs, form, layers):
    """Listing 24.3: a compressed weight has far more weight in a layer before it is split at 16 MB."""
    weight = np.zeros((outputs, 8192), np.float16)
    weight[:, ::512] = 0.5
    out = af.input((1, 8192), name="x").linear(weight if form is None else encode(weight, form))
    program = af.compile(out, target="m5").program
    kernels = [each for each in program.weights if each.flow is not None]
    assert len(kernels) == layers
    assert {each.encoding for each in kernels} == {form or "fp16"}
    assert all(each.streams for each in kernels)


@pytest.mark.parametrize(("outputs", "passes"), [(16 * 28, 1), (16 * 28 + 1, 2)])
def test_a_folded_weight_is_sized_against_64_kilobytes_a_lane(outputs, passes):
    """2304 bytes an output of fp16 (U28): 28 of them are what a lane holds. The stored form does not count."""
    weight = np.ones((outputs, 128, 3, 3), np.float16)
    out = af.conv(af.input((1, 128, 9, 9)), encode(weight, "int4"), stride=2)
    program = af.compile(out, target="m1").program
    (kernel,) = (op for op in program.module.ops if op.kind == "convolution")
    assert kernel.labels.get("passes", 1) == passes


@pytest.mark.parametrize("form", ["sparse", "sparse-lut4", "blockwise", "fp8-e4m3", "int4", "int8"])
def test_archives_keep_every_form(form, tmp_path):
    weight = np.random.default_rng(4).standard_normal((64, 64)).astype(np.float16)
    weight[:, ::2] = 0
    model = af.compile(af.input((2, 64), name="x").linear(encode(weight, form)), target="h18")
    model.save(tmp_path / "model.anef")
    again = af.load_program(tmp_path / "model.anef")
    data = np.random.default_rng(5).standard_normal((2, 64))
    np.testing.assert_array_equal(model(data), again(data))
    assert [each.to_json() for each in again.program.weights] == [each.to_json() for each in model.program.weights]
    np.testing.assert_array_equal(again.program.weights[0].decode(), model.program.weights[0].decode())
