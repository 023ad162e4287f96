"""Every cell of the seed tables against the database.

``seed_tables.py`` holds the cells as the documents print them, typed from a second reading. Where a measured
value or a choice overrides a cell, ``OVERRIDDEN`` names the conflict, and the test asks that the database
gives another value, names that conflict, and keeps the printed value as the loser where it has one.
"""

from __future__ import annotations

import itertools

import pytest
import seed_tables as seed

from aneforge import _targets as tg
from aneforge.chips import (
    Family,
    Family8,
    all_targets,
    backend_op,
    backend_ops,
    device_info,
    generation,
    limit_fact,
    op_routes,
    op_status,
    resolve,
    slice_saturates,
    stream_fact,
    target,
)
from aneforge.chips.chip import compiler_target
from aneforge.chips.evidence import conflict
from aneforge.chips.ops import lowered_to

ANCHORS = {"h13": "h13", "A14": "h14", "A15": "h15", "A16": "h16", "A17": "h17s", "A18": "h18"}
# Targets that a generation label of the seeds speaks of: "65536 at A16" holds from h16 up.
GENERATIONS = {"A13": "h13", "A14": "h14", "A15": "h15", "A16": "h16", "A17": "h17", "A18": "h18"}
GROUPS = {
    "below A13": ["h11", "h12", "m9", "t0"],
    "older and small profiles": ["h11", "h12", "m9", "t0"],
    "small profiles": ["m9"],
}


def hal(name):
    return compiler_target(name).hal


def test_every_override_is_a_known_conflict():
    for key, number in {**seed.OVERRIDDEN, **seed.QUALIFIED}.items():
        assert conflict(number).id == number, key


@pytest.mark.parametrize("row", seed.TABLE_24_1, ids=lambda row: hex(row["offset"]))
def test_table_24_1(row):
    offset = row["offset"]
    values = {"A13": row["h13"]}
    for label in list(GENERATIONS)[1:]:
        values[label] = dict(row["steps"]).get(label, list(values.values())[-1])
    for label, value in values.items():
        assert hal(GENERATIONS[label])[offset].value == value, label
    for suffix, cores in row["suffix_steps"]:
        variants = [each for each in all_targets(only_28=True) if each.name[0] == "h" and each.name[3:] == suffix]
        assert variants, suffix
        for each in variants:
            if each.name != "h12":  # the guide gives a range only
                assert each.cores == cores == each.hal[offset].value, each.name
    for group, value in row["exceptions"]:
        for name in GROUPS.get(group, [group]):
            cell = hal(name)[offset]
            if group == "small profiles":  # which profiles are meant is not said, so the cell stays unknown
                assert not cell.known
                assert cell.note
            elif value == "None":  # the policy string is absent there
                assert cell.value in (None, "None")
            else:
                assert cell.value == value, name
    if row["changes_at"] == "0 on all 28 targets":
        assert {each.hal[offset].value for each in all_targets(only_28=True)} == {0}


def test_table_24_1_field_names():
    for row in seed.TABLE_24_1:
        if row["field"].isidentifier():
            assert hal("h13").field(row["offset"]).name == row["field"]


# One backend op (or several) for each word the two floor tables use.
FLOOR_WORDS = {
    "conv": ["convolution"],
    "deconv": ["deconvolution"],
    "pooling": ["max_pool", "average_pool", "l2norm_pool"],
    "elementwise": ["add", "sub", "mult", "div", "max", "min", "power", "abs", "square", "equal", "greater_than"],
    "reductions": ["reduce_sum", "reduce_avg", "reduce_max", "reduce_min"],
    "quantize": ["quant"],
    "dequantize": ["dequant"],
    "rsqrt": ["r_sqrt"],
}


@pytest.mark.parametrize("row", seed.TABLE_24_2 + seed.TABLE_35_2, ids=lambda row: row["floor"])
def test_floor_tables(row):
    families = row.get("native_families") or [f.name for f in Family8 if f >= Family8[row["first_family"]]]
    for word, family in itertools.product(row["ops"], Family8):
        for name in FLOOR_WORDS.get(word, [word]):
            op = backend_op(name)
            assert op.floor.value == row["floor_index"], name
            assert op.native_on(family) == (family.name in families), (name, family)


def test_no_compute_op_floors_above_a15():
    assert {op.floor.value for op in backend_ops()} == {0, 2, 3, 4}


@pytest.mark.parametrize("row", seed.TABLE_24_3, ids=lambda row: hex(row["offset"]))
@pytest.mark.parametrize("column", ["h13", "A14", "A15", "A16", "A18"])
def test_table_24_3(row, column):
    table = hal(ANCHORS[column])
    assert table.field(row["offset"]).is_capability
    assert table.cap(row["offset"]) is bool(row[column])
    assert table[row["offset"]].source


def test_fp8_is_set_on_h18_alone():
    assert [each.name for each in all_targets(only_28=True) if each.hal.cap(0x52D)] == ["h18"]


@pytest.mark.parametrize("row", seed.TABLE_24_4, ids=lambda row: row["field"])
@pytest.mark.parametrize("column", [column for column, _, _ in seed.TABLE_24_4_COLUMNS])
def test_table_24_4(row, column):
    name = {key: target for key, _, target in seed.TABLE_24_4_COLUMNS}[column]
    assert hal(name)[row["offset"]].value == row[column]


@pytest.mark.parametrize(
    ("offset", "meaning", "reader"), seed.TABLE_24_5, ids=lambda v: v if isinstance(v, str) else ""
)
def test_table_24_5(offset, meaning, reader):
    field = hal("h13").field(offset)
    assert field.offset == offset
    assert reader in field.readers
    assert "S24" in field.evidence.source
    assert not field.dead
    shared = set(field.meaning.replace("-", " ").replace("/", " ").split()) & set(meaning.replace("-", " ").split())
    assert shared, (field.meaning, meaning)


def test_dead_fields_are_the_five_of_chapter_24():
    dead = {field.offset for field in hal("h13").fields() if field.dead}
    assert dead == {0x18, 0x80, 0x260, 0x320, 0x29C}
    assert all(field.write_only for field in hal("h13").fields() if field.dead)
    assert not hal("h13").field(0x563).dead  # looks dead on the M1 and is not


def test_listing_35_1():
    assert [(member.name, int(member)) for member in Family8] == seed.LISTING_35_1


TABLE_35_1_CELLS = [
    (version, family, index, name) for version, family, index, names in seed.TABLE_35_1 for name in names
]


@pytest.mark.parametrize(("version", "family", "index", "name"), TABLE_35_1_CELLS, ids=str)
def test_table_35_1(version, family, index, name):
    assert Family8[family] == index
    chip = compiler_target(name)
    overridden = seed.OVERRIDDEN.get(("35.1", name))
    if overridden is None:
        assert (chip.hardware_version, chip.family8) == (version, index)
        assert not chip["hardware_version"].losers
        return
    assert chip.hardware_version != version
    for field, printed in (("hardware_version", version), ("family8", family)):
        assert chip[field].conflict_id == overridden
        assert [loser.value for loser in chip[field].losers] == [printed]
        assert "S35" in chip[field].losers[0].source


def test_the_stamps_go_through_the_seed_map():
    versions = {version: family for version, family, _, _ in seed.TABLE_35_1}
    for chip in all_targets(only_28=True):
        if chip.hardware_version in versions:
            assert chip["family8"].value == versions[chip.hardware_version], chip.name


DRIVERS = {
    "patch-width clamps": [0x3F8, 0x400, 0x410],
    "width granule": [0x1C0],
    "texture-engine-present flag": [0x81D],
    "copy-cast threshold": [0x1B8],
    "max-tensor-size threshold": [0x138],
    "maximum height": [0x468],
    "maximum width": [0x470],
    "allowed-factor list": [0x730],
}


@pytest.mark.parametrize("row", seed.TABLE_35_3, ids=lambda row: row["category"])
def test_table_35_3(row):
    for driver in row["driven_by"]:
        for offset in DRIVERS[driver]:
            assert hal("h13").field(offset).offset == offset


M1_STATUS = {
    "decomposed": "decompose",
    "rejected at code generation": "reject",
    "unavailable": "decompose",  # dropout and random: host-side numbers (cross-chip page)
    "unfused form emitted": "decompose",
}
TABLE_35_4_OPS = [
    (row, op) for row in seed.TABLE_35_4 for op in row["ops"] if op not in ("width_slice", "int8", "blockwise")
]


@pytest.mark.parametrize(("row", "op"), TABLE_35_4_OPS, ids=lambda v: v if isinstance(v, str) else "")
def test_table_35_4_operations(row, op):
    overridden = seed.OVERRIDDEN.get(("35.4", op, "m1_status"))
    assert op_status(op, Family.A13) == ("reject" if overridden else M1_STATUS[row["m1_status"]])
    if overridden:
        assert conflict(overridden)
        assert M1_STATUS[row["m1_status"]] == "decompose"
    enabling = Family[row["enabling_family"]]
    for family in Family:
        if family > Family.OLDER:
            assert (op_status(op, family) == "native") == (family >= enabling), family
    if row["hal_offset"] is not None:
        first = compiler_target(tg.arch_for_family(enabling)).hal
        assert first.cap(row["hal_offset"])
        before = hal("h13").cap(row["hal_offset"])
        assert before == (("35.4", op, "hal_offset") in seed.OVERRIDDEN)


def test_table_35_4_slice():
    row = next(row for row in seed.TABLE_35_4 if row["ops"] == ["width_slice"])
    assert row["limit"] == tg.FP16_SLICE_SAT == 65504 / 16
    for family in Family:
        if family > Family.OLDER:
            assert slice_saturates(family).value == (family < Family[row["enabling_family"]]), family


@pytest.mark.parametrize("encoding", ["int8", "blockwise"])
def test_table_35_4_streaming(encoding):
    row = next(row for row in seed.TABLE_35_4 if row["ops"] == [encoding])
    for family in Family:
        if family > Family.OLDER:
            streams = family >= Family[row["enabling_family"]]
            assert (encoding in tg.native_streams(family)) == streams
            assert stream_fact(encoding, family).value == ("stream" if streams else "fold")


@pytest.mark.parametrize(("number", "families", "offset"), seed.TABLE_35_5, ids=str)
def test_table_35_5(number, families, offset):
    record = generation(number)
    assert record.patch_width_offset.value == offset
    assert record.patch_capable
    assert record.seed_family is not None
    assert record.seed_family.value == families
    carriers = [each for each in all_targets(only_28=True) if each.td_generation == number]
    assert carriers
    listed = {part.strip() for part in families.split(",")} - {"M1", "M5"}
    overridden = seed.OVERRIDDEN.get(("35.5", number, "family"))
    if overridden is None:
        assert {each["family8"].value for each in carriers} == listed
    else:
        assert record.seed_family.conflict_id == overridden
        wrong_chip = "M5" in families and target("M5").td_generation != number
        assert wrong_chip or {each["family8"].value for each in carriers} != listed


@pytest.mark.parametrize(("offsets", "meaning"), seed.TABLE_35_6, ids=lambda v: v if isinstance(v, str) else "")
def test_table_35_6(offsets, meaning):
    table = hal("h13")
    for entry in offsets if isinstance(offsets, list) else [offsets]:
        start, end = entry if isinstance(entry, tuple) else (entry, None)
        field = table.field(start)
        if end is not None:
            spans = {(each.offset, each.end) for each in table.fields()}
            assert (start, end) in spans
        assert field.offset == start
        assert "S35" in field.evidence.source or "S24" in field.evidence.source or field.offset == 0x812, meaning


@pytest.mark.parametrize(("families", "clamps", "ramp"), seed.TABLE_35_7, ids=str)
def test_table_35_7(families, clamps, ramp):
    names = [word for word in families.replace("(", ",").replace(")", "").split(",") if word.strip()[:1] == "A"]
    for name in (word.strip() for word in names):
        arm = device_info(Family8["A11Legacy" if name == "A11" else name])
        assert arm.clamps.value == tuple(clamps)
        assert arm.setup_ramp.value == ramp
        assert arm.constant == 0.0008
        sizes = (1, 7, 15, 30, 50)
        told = [arm.bandwidth_clamp(size) for size in sizes]
        assert [clamp.value for clamp in told[: len(clamps)]] == clamps
        for clamp in told[len(clamps) :]:
            assert clamp.confidence == "inferred"
            assert clamp.conflict_id == "U12"
    if families in seed.TABLE_35_7_OPEN:
        assert len(clamps) < 5


def test_table_35_7_thresholds():
    arm = device_info(Family8.A13)
    assert arm.buckets == (6, 10, 20, 40)
    assert [arm.bucket(size) for size in (6, 7, 10, 11, 20, 21, 40, 41)] == [0, 1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("row", seed.TABLE_22_5, ids=lambda row: row["ops"][0])
def test_table_22_5(row):
    if row["byte"] is None:
        assert op_status("conv3d", Family.A13) == "reject"
        assert hal("h13").max_large_conv_kernel_dim_z == 16  # attested, and still not reachable
        return
    first = {0x815: "h13", 0x816: "h13", 0x4A9: "h15", 0x81D: "h14", 0x814: "h13"}[row["byte"]]
    assert hal(first).cap(row["byte"])
    if row["byte"] == 0x815:
        assert not hal("h11").cap(0x815)
    elif row["byte"] in (0x4A9, 0x81D):
        assert not hal("h13").cap(row["byte"])


LAYER_OPS = {"resize_hw": "Resize", "furthest_point_sampling": "fps"}
TABLE_26_1_CELLS = [(row, layer) for row in seed.TABLE_26_1 for layer in row["layers"]]


@pytest.mark.parametrize(("row", "layer"), TABLE_26_1_CELLS, ids=lambda v: v if isinstance(v, str) else "")
def test_table_26_1(row, layer):
    routes = op_routes(LAYER_OPS.get(layer, layer))
    told = row["first_family"].get(layer)
    if told is None:
        return
    # The table begins with the M1. Below it the floors of the backend ops decide (U142).
    above = {family: status.value for family, status in routes.direct.items() if family > Family.OLDER}
    first = min(family for family, status in above.items() if status == "native")
    if ("26.1", row["class"], "first_family", layer) in seed.OVERRIDDEN:
        assert first is Family.A13
    else:
        assert first is (Family.A14 if told == ">A13" else Family[told])


def test_table_26_1_factors():
    row = next(row for row in seed.TABLE_26_1 if row["class"] == "Spatial rearrangement")
    assert tuple(hal("h13")[0x730].value) == row["gate_values"]["factors"]


@pytest.mark.parametrize("row", seed.CROSS_CHIP_FAMILIES, ids=lambda row: row["family"])
def test_cross_chip_families(row):
    assert tg.Family[row["family"]] == row["index"]
    assert tg.supports_mil(row["index"]) is row["reachable"]
    for chip in row["chips"]:
        assert target(chip).family5 == row["index"]
    for label in row["folds"]:
        tier = [each for each in all_targets(only_28=True) if each["tier"].value == label]
        assert tier
        assert all(each.family5 == row["index"] for each in tier)


@pytest.mark.parametrize(("chip", "arch", "family"), seed.CROSS_CHIP_LADDER, ids=str)
def test_cross_chip_ladder(chip, arch, family):
    answer = resolve(chip)
    assert answer.target.family5 == Family[family] == tg.family_of_arch(arch.lower())
    overridden = seed.OVERRIDDEN.get(("ladder", chip, "arch"))
    if overridden is None:
        assert answer.target.name == arch.lower()
    else:
        assert answer.fact.conflict_id == overridden
        assert answer.fact.losers[0].value == arch.lower()


@pytest.mark.parametrize("row", seed.CROSS_CHIP_STREAMS, ids=lambda row: row["family"])
def test_cross_chip_streams(row):
    short = {"int4_lut": "int4"}
    for family in row["families"]:
        assert tg.native_streams(Family[family]) == {short.get(name, name) for name in row["streams"]}
        for name in row["folds"]:
            assert stream_fact(name, Family[family]).value == "fold"


CAP_NAMES = {"conv_kernel_width": "conv_kw_max"}


@pytest.mark.parametrize("row", seed.CROSS_CHIP_CAPS, ids=lambda row: row["name"])
def test_cross_chip_caps(row):
    for label, value in row["values"].items():
        family = Family[label]
        name = row["name"]
        overridden = seed.OVERRIDDEN.get(("caps", name, label))
        if name.startswith("hal_"):
            found = compiler_target(tg.arch_for_family(family)).hal[name.removeprefix("hal_")].value
        elif name == "slice_threshold":
            found = tg.FP16_SLICE_SAT
        elif name == "slice_saturates":
            answer = slice_saturates(family)
            found = answer.value
            if overridden:
                assert answer.conflict_id == overridden
        elif name == "representative_arch":
            found = tg.arch_for_family(family)
        elif name == "loss_scale_guard":
            continue  # the training guard reads this number; it is no property of the database
        else:
            found = limit_fact(CAP_NAMES.get(name, name), family).value
        assert (found == value) is (overridden is None), (name, label)
    for label, refused in row["first_reject"].items():
        if row["name"] in ("spatial_extent", "channel_extent", "conv_kernel_width"):
            assert limit_fact(CAP_NAMES.get(row["name"], row["name"]), Family[label]).value == refused - 1


STATUS_WORDS = {
    "pooling": ["max_pool", "avg_pool"],
    "elementwise": ["add", "sub", "mul", "real_div", "maximum", "minimum", "pow", "abs", "square"],
    "activations": ["relu", "gelu", "silu", "sigmoid", "tanh", "elu", "leaky_relu", "softplus"],
    "norms": ["layer_norm", "instance_norm", "batch_norm", "group_norm", "rms_norm"],
    "reductions": ["sum", "mean", "amax", "amin", "reduce_sum", "reduce_log_sum_exp"],
}


@pytest.mark.parametrize("row", seed.CROSS_CHIP_STATUSES, ids=lambda row: row["op"])
def test_cross_chip_statuses(row):
    for op in STATUS_WORDS.get(row["op"], [row["op"]]):
        assert tg.op_status(op, Family.OLDER) == "reject"
        for label in ("A13", "A14", "A15", "A16"):
            overridden = seed.OVERRIDDEN.get(("statuses", row["op"], label))
            if overridden:
                assert tg.op_status(op, Family[label]) != row[label]
                assert conflict(overridden)
            elif row[label] is not None:
                assert tg.op_status(op, Family[label]) == row[label], (op, label)


def test_ops_without_a_native_form_are_decomposed_everywhere():
    formless = (
        "tan asin acos atan2 sinh cosh atanh asinh acosh logical_and logical_or logical_xor lstm gru rnn scatter "
        "one_hot non_zero mod band_part reverse_sequence"
    )
    for op in formless.split():
        assert {op_status(op, family) for family in Family if family > Family.OLDER} == {"decompose"}, op


def test_routes_differ_where_chapter_26_says_so():
    whole_tensor = op_routes("global_arg_min_max")
    assert whole_tensor.conversion[Family.A13].value == "reject"
    assert whole_tensor.direct is not None
    assert whole_tensor.direct[Family.A13].value == "native"
    sine = op_routes("sin")
    assert sine.direct is not None
    assert (sine.conversion[Family.A13].value, sine.direct[Family.A13].value) == ("decompose", "reject")


def test_floor_census_of_chapter_35():
    """88 traits in the seed, 94 names published; the two rarest floors agree exactly."""
    counts = {floor: sum(1 for op in backend_ops() if op.floor.value == floor) for floor in (0, 2, 3, 4)}
    assert (counts[3], counts[4]) == (2, 3)
    assert sum(counts.values()) == 94
    assert lowered_to("sin") is backend_op("anec.sin")
