"""What the seeds say and a user's graph must reach: authored, loaded from files, checked, compiled and simulated.

Each test names the statement of a seed (S22, S24, S26, S35, SXC) or the id of a fact.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from cli_kit import run
from onnx import TensorProto, helper, numpy_helper

import aneforge as af
from aneforge.chips import all_targets, store

MACS = ("m1", "m2", "m3", "m4", "m5", "m6")
AFFINE = "affine transform is not supported on this architecture"
RNG = np.random.default_rng(11)
IMAGE = RNG.normal(size=(1, 3, 6, 8)).astype(np.float16)
GRID = RNG.uniform(-1.2, 1.2, (1, 4, 5, 2)).astype(np.float16)
BOXES = np.array([[0, 1, 4, 6], [1.5, 2, 5, 7], [-1, 0, 3, 3]], np.float16)


def onnx_file(path, node, inputs, stored=()):
    """A model of one node; ``inputs`` and ``stored`` are arrays by name."""
    kinds = {np.dtype(np.int64): TensorProto.INT64}
    ports = [
        helper.make_tensor_value_info(name, kinds.get(array.dtype, TensorProto.FLOAT), array.shape)
        for name, array in inputs.items()
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in dict(stored).items()]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", 1, None)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return str(path)


def by_onnx(path, feeds):
    """The numbers of ONNX's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(path).run(None, feeds)[0]


def verdicts(model):
    return {chip: af.preflight(model, chip).ok for chip in MACS}


# F3: the samplers of the texture engine (S35 table 35.2, S24 table 24.2).


def live_samplers():
    x = af.input(IMAGE.shape, name="x")
    return {
        "resample": af.resample(x, af.input(GRID.shape, name="places")),
        "crop_resize": af.crop_resize(x, af.input(BOXES.shape, name="places"), 3, 4, sampling_mode="ALIGN_CORNERS"),
    }


FEEDS = {"resample": {"x": IMAGE, "places": GRID}, "crop_resize": {"x": IMAGE, "places": BOXES}}


@pytest.mark.parametrize("op", FEEDS)
def test_f3_samplers_run_natively_from_a14(op):
    """S35 table 35.2: crop-resize and resample are native on A14 through A18; S24: A14 brings the samplers."""
    model = live_samplers()[op]
    for chip in ("h14", "h14g", "h15", *(["h16", "h17s", "h18"] if op == "resample" else [])):
        compiled = af.compile(model, target=chip)
        assert [layer.op for layer in compiled.program.layers if layer.engine == "TE"] == [op]
        assert not compiled.program.rewrites
        result = np.asarray(compiled(**FEEDS[op]), np.float64)
        np.testing.assert_allclose(result, compiled.reference(**FEEDS[op]), atol=2e-3)


@pytest.mark.parametrize("chip", ["h11", "h12", "h13", "h13g", "t1"])
@pytest.mark.parametrize("op", FEEDS)
def test_f3_samplers_are_rejected_below_a14(op, chip):
    """SXC: texture-engine ops (crop_resize, resample, affine, A14+) hard-reject below their floor; S26: the compiler
    reports that the affine transform is not supported on this architecture."""
    with pytest.raises(af.CompileError) as caught:
        af.compile(live_samplers()[op], target=chip)
    if chip in ("h13", "h13g", "t1"):
        assert f"{op} is not available on {chip} by the conversion route: the chip has no texture engine" in str(
            caught.value
        )
        assert AFFINE in str(caught.value)


def test_f3_crop_resize_is_refused_as_measured_on_an_m5_alone():
    """C12: the floor stays for legality, and the op is marked as not reachable where an M5 showed it."""
    model = live_samplers()["crop_resize"]
    assert verdicts(model) == {"m1": False, "m2": True, "m3": True, "m4": False, "m5": False, "m6": False}
    for chip, confidence in (("m4", "predicted"), ("m5", "measured"), ("m6", "predicted")):
        (finding,) = af.preflight(model, chip).reject[0].findings
        assert (finding.rule, finding.evidence.confidence) == ("sweep", confidence)
        unit = af.bridge("CropResize", [af.input(IMAGE.shape), [[0, 0]]], crop_dims=[2, 2], output_dims=[4, 4])
        with pytest.raises(af.CompileError, match=confidence):
            af.compile(unit, target=chip)


@pytest.mark.parametrize("op", FEEDS)
def test_f3_stored_places_have_another_form_below_the_floor(op):
    """S24: the compiler decomposes or rejects depending on whether a legal decomposition exists (U19)."""
    x = af.input(IMAGE.shape, name="x")
    stored = af.resample(x, GRID, padding_value=0.5) if op == "resample" else af.crop_resize(x, BOXES, 3, 4)
    assert all(verdicts(stored).values())
    name = {"resample": "stored-grid", "crop_resize": "stored-boxes"}[op]
    entry = af.preflight(stored, "m1").decompose[0]
    assert entry.rewrite == name
    for chip in ("m1", "m2"):
        compiled = af.compile(stored, target=chip)
        np.testing.assert_allclose(compiled(IMAGE), compiled.reference(IMAGE), atol=4e-3)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: af.resample(x, af.input((1, 2, 4, 5))), r"the grid is \[1, 2, 4, 5\]; expected \[1, H, W, 2\]"),
        (lambda x: af.resample(x, af.input((2, 4, 5, 2))), r"expected \[1, H, W, 2\]: column and row of each place"),
        (lambda x: af.crop_resize(x, af.input((3, 5)), 2, 2), r"boxes are \[3, 5\]; expected \[count, 4\]"),
        (lambda x: af.crop_resize(x, af.input((4,)), 2, 2), r"boxes are \[4\]; expected \[count, 4\]"),
        (lambda x: af.resample(x, GRID, "cubic"), "sampling_mode is 'cubic'; choose one: bilinear, nearest"),
        (lambda x: af.crop_resize(x, BOXES, 0, 2), "target_height must be at least 1, not 0"),
    ],
)
def test_f3_places_of_the_wrong_shape_are_one_line(build, message):
    with pytest.raises(af.GraphError, match=message) as caught:
        build(af.input(IMAGE.shape))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("op", FEEDS)
def test_f3_core_ml_ops_become_the_graphs(op, tmp_path):
    """The Core ML ops load as these ops and the gate decides; what the graph writes, it reads back."""
    path = tmp_path / "model.mlpackage"
    af.export_coreml(live_samplers()[op], path)
    model = af.load(str(path))
    assert [node.op for node in model.operations] == [op]
    assert verdicts(model) == verdicts(live_samplers()[op])
    assert af.preflight(model, "m1").reject[0].string == AFFINE
    feeds = [FEEDS[op][node.name] for node in model.inputs]
    want = af.compile(live_samplers()[op], target="m2")(**FEEDS[op])
    np.testing.assert_array_equal(af.compile(model, target="m2")(*feeds), want)


def test_f3_core_ml_boxes_of_the_wrong_shape_are_one_line(tmp_path, monkeypatch, capsys):
    import json

    from aneforge.formats.ops.images import OPS

    x = af.input(IMAGE.shape)
    for boxes, wanted in ((af.input((3, 5)), "[count, 4]"), (np.zeros((2, 4, 4)), "[count, 4]")):
        with pytest.raises(af.LoadError) as caught:
            OPS["crop_resize"](x, boxes=boxes, box_indices=np.zeros(3))
        assert str(caught.value) == f"boxes are {json.dumps(list(boxes.shape))}; expected {wanted}"


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("corners", [0, 1])
def test_f3_grid_sample_of_onnx_is_a_resample(tmp_path, padding, mode, corners):
    node = helper.make_node(
        "GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=corners, name="warp"
    )
    feeds = {"x": IMAGE.astype(np.float32), "g": GRID.astype(np.float32)}
    path = onnx_file(tmp_path / "warp.onnx", node, feeds)
    model = af.load(path)
    assert "resample" in [op.op for op in model.operations]
    assert verdicts(model) == {chip: chip != "m1" for chip in MACS}
    got = af.compile(model, target="m5")(*(feeds[node.name] for node in model.inputs))
    np.testing.assert_allclose(got, by_onnx(path, feeds), atol=4e-3)


@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_f3_roi_align_of_onnx_is_a_crop_resize(tmp_path, mode):
    """Boxes inside, partly outside and far outside of an image; the images of a batch are known."""
    node = helper.make_node(
        "RoiAlign", ["x", "rois", "images"], ["y"], output_height=3, output_width=2, sampling_ratio=2,
        spatial_scale=0.5, coordinate_transformation_mode=mode,
    )  # fmt: skip
    image = RNG.normal(size=(2, 3, 6, 7)).astype(np.float16).astype(np.float32)
    rois = np.array([[1, 1, 9, 11], [0, 3, 14, 8], [-3, 2, 20, 30], [0, 0, 4, 4]], np.float32)
    feeds = {"x": image, "rois": rois}
    path = onnx_file(tmp_path / "roi.onnx", node, feeds, {"images": np.array([0, 1, 1, 0])})
    model = af.load(path)
    assert [op.op for op in model.operations].count("crop_resize") == 3  # runs of boxes of one image
    assert verdicts(model) == {"m1": False, "m2": True, "m3": True, "m4": False, "m5": False, "m6": False}
    got = af.compile(model, target="m2")(*(feeds[node.name] for node in model.inputs))
    np.testing.assert_allclose(got, by_onnx(path, feeds), atol=6e-3)


def test_f3_the_listing_names_ops_that_exist(monkeypatch, capsys):
    """`aneforge ops` has both from M2 on, and users can write what it lists."""
    for op in FEEDS:
        status, text, _ = run(f"ops {op} --target m1,m2", monkeypatch, capsys)
        assert status == 0
        assert "reject" in text
        assert "native" in text
        assert callable(getattr(af, op))


def test_f3_numbers_are_labelled_as_assumed():
    """No chip was measured: the fidelity report says so."""
    report = af.fidelity(live_samplers()["resample"], target="m2")
    assert "assumed" in str(report)


def test_affine_runs_on_the_texture_engine_from_a14():
    """S22: an affine transform without the texture engine returns "affine transform is not supported ..."; S26: it is
    accepted from the A14 generation and rejected on the M1."""
    x, turn = af.input(IMAGE.shape, name="x"), af.input((1, 6), name="turn")
    model = af.affine(x, turn, 6, 8)
    for chip in all_targets(only_28=True):
        if chip.is_reference or chip.family8 is None:
            continue
        if chip.hal["texture_engine"].value:
            program = af.compile(model, target=chip.name).program
            assert [layer.engine for layer in program.layers if "AffineTransform" in layer.op] == ["TE"]
        else:
            with pytest.raises(af.CompileError) as caught:
                af.compile(model, target=chip.name)
            assert AFFINE in str(caught.value) or "MIL is only supported for H13+" in str(caught.value)


def test_f3_a_netplist_states_places_in_pixels_only(tmp_path):
    """layers.json Resample: SamplingMethod is its only published key, so coordinates from -1 to 1 would be lost."""
    x, grid = af.input(IMAGE.shape, name="x"), af.input(GRID.shape, name="grid")
    with pytest.raises(af.AneforgeError, match="places in pixels with zeros outside only"):
        af.save_netplist(af.resample(x, grid, "nearest"), tmp_path / "net.plist")
    pixels = af.resample(x, grid, "nearest", 0.0, "unnormalized")
    path = af.save_netplist(pixels, tmp_path / "net.plist").path
    again = af.compile(af.load(str(path)), target="m2")
    feeds = {"x": IMAGE, "grid": GRID * 4}
    np.testing.assert_array_equal(
        np.asarray(again(**feeds)).reshape(pixels.shape), af.compile(pixels, target="m2")(**feeds)
    )


# Attested is not reachable: 3-D convolution (S24, S22, C08).

VOLUME = RNG.normal(size=(1, 2, 4, 5, 6)).astype(np.float16)
KERNEL = RNG.normal(size=(3, 2, 3, 2, 2)).astype(np.float16)


@pytest.fixture
def volumes(tmp_path):
    """A file with one 3-D convolution."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 0, 0, 1, 1, 1], strides=[1, 2, 1], name="deep")
    return onnx_file(
        tmp_path / "volumes.onnx", node, {"x": VOLUME.astype(np.float32)}, {"w": KERNEL.astype(np.float32)}
    )


def test_conv3d_keeps_its_rank_and_fails_on_every_direct_route(volumes):
    """S24: it still fails backend lowering on every device mask, returning the message that it is not supported on any
    backend; S22: it has its capability byte yet fails backend lowering."""
    model = af.load(volumes)
    assert [node.op for node in model.operations] == ["conv3d"]
    for chip in MACS:
        with pytest.raises(af.CompileError, match="not supported on any backend") as caught:
            af.compile(model, target=chip, route="direct")
        assert "y: conv3d" in str(caught.value)
        assert "C08" in str(caught.value)
        assert "conv3d-as-planes" in str(caught.value)


def test_conv3d_is_a_route_gate(volumes):
    """C08: conversion refuses it where the seeds were measured, and a published h18g program (M6) holds it."""
    model = af.load(volumes)
    assert verdicts(model) == {chip: chip == "m6" for chip in MACS}
    confidences = {chip: af.preflight(model, chip).reject[0].findings[0].evidence.confidence for chip in MACS[:-1]}
    assert confidences == {"m1": "measured", "m2": "predicted", "m3": "predicted", "m4": "predicted", "m5": "measured"}
    compiled = af.compile(model, target="m6")
    assert [layer.op for layer in compiled.program.layers] == ["convolution"]
    feeds = {"x": VOLUME.astype(np.float32)}
    np.testing.assert_allclose(compiled(VOLUME), by_onnx(volumes, feeds), atol=2e-2)


def test_conv3d_has_a_named_form_that_users_apply(volumes, tmp_path, monkeypatch, capsys):
    """The 2-D form is offered by name, not taken in silence."""
    status, text, _ = run(f"check {volumes} --target m1", monkeypatch, capsys)
    assert status == 1
    assert "not supported on any backend" in " ".join(text.split())
    assert "conv3d-as-planes" in text
    out = tmp_path / "planes.aneforge"
    status, text, _ = run(f"tune {volumes} --form conv3d-as-planes --out {out}", monkeypatch, capsys)
    assert status == 0
    model = af.load(str(out))
    assert all(verdicts(model).values())
    want = by_onnx(volumes, {"x": VOLUME.astype(np.float32)})
    np.testing.assert_allclose(af.compile(model, target="m1")(VOLUME), want, atol=2e-2)
    with pytest.raises(af.AneforgeError, match="conv3d-as-planes fits nowhere in the model"):
        af.apply_form(model, "conv3d-as-planes")
    with pytest.raises(af.AneforgeError, match="not a form; choose one: "):
        af.apply_form(model, "planes")
    status, _, error = run(f"tune {volumes} --form conv3d-as-planes", monkeypatch, capsys)
    assert status == 2
    assert "--out" in error


def test_conv3d_reads_back_from_core_ml(tmp_path):
    x = af.input(VOLUME.shape, name="x")
    af.export_coreml(af.conv3d(x, KERNEL, stride=(1, 2, 1)), tmp_path / "deep.mlpackage")
    assert [node.op for node in af.load(str(tmp_path / "deep.mlpackage")).operations] == ["conv3d"]


def test_conv3d_bad_input_is_one_line():
    for settings, message in (
        ({"stride": (1, 2)}, "stride takes one or three numbers, not 2"),
        ({"pad": (1, 1)}, "pad has 2 numbers; expected one, or two for each of depth, height and width"),
        ({"groups": 4}, "input channels 2 are not divisible by groups 4"),
    ):
        with pytest.raises(af.GraphError, match=message):
            af.conv3d(af.input(VOLUME.shape), KERNEL, **settings)


# Two compile routes and their gates (S26): whole-tensor positions.


def test_argmax_of_a_whole_tensor_has_two_gates():
    """S26: the conversion route floors it above the M1, the direct-authoring route gates it on a feature byte that is
    set from the A13 onward (C13); S35 table 35.2: floor F4."""
    x = af.input((1, 4, 5, 6), name="x")
    place = x.argmax(axis=None)
    data = RNG.normal(size=x.shape).astype(np.float16)
    for chip, by_conversion in (("m1", False), ("m2", False), ("m3", True), ("m4", True), ("m5", True), ("m6", True)):
        assert af.preflight(place, chip, "conversion").ok == by_conversion
        assert af.preflight(place, chip, "direct").ok
        assert af.compile(place, target=chip)(data).item() == data.argmax()
    refusal = af.preflight(place, "m1", "conversion").reject[0]
    assert "use the direct route" in refusal.hint


# The two oldest families (S35): broadcast.


@pytest.mark.parametrize("chip", ["h11", "h12"])
@pytest.mark.parametrize(
    ("build", "layers"),
    [
        (lambda: af.input((1, 4, 1, 5)).tile([1, 1, 3, 1]), ["add"]),
        (lambda: af.input((1, 1, 4, 5)).tile([1, 3, 1, 1]), ["matmul"]),
        (lambda: af.input((1, 1, 1, 5)).tile([1, 4, 3, 1]), ["add", "matmul"]),
        (
            lambda: af.bridge(
                "Broadcast", [af.input((1, 4, 1, 5))], BroadcastInfo=[{"Dimension": "Height", "Size": 3}]
            ),
            ["add"],
        ),
    ],
)
def test_legacy_broadcasts_are_reached_from_tile_and_broadcast(chip, build, layers):
    """S35: a channel-group axis broadcasts as a matrix multiply by ones, and other axes as an elementwise add by
    zero."""
    program = af.compile(build(), target=chip).program
    assert [layer.op for layer in program.layers] == layers
    assert [record.rewrite for record in program.rewrites] == ["ones-and-zeros-for-broadcast"]


def test_legacy_broadcasts_assert_fp16():
    """S35: broadcast on the legacy families asserts fp16."""
    truth = af.input((1, 4, 1, 5)).greater(0.0).tile([1, 1, 3, 1])
    with pytest.raises(af.CompileError, match="this family broadcasts fp16 only"):
        af.compile(truth, target="h11")
    with pytest.raises(af.CompileError, match="tile starts with the M1 and the A14 Bionic"):
        af.compile(af.input((1, 4, 1, 5)).tile([1, 2, 1, 1]), target="h11")


# Patch width (S35).


@pytest.mark.parametrize(("width", "across"), [(8, 4), (16, 4), (17, 5), (128, 7), (512, 9), (1024, 9), (2048, 9)])
def test_patch_width_is_the_log_of_the_width_within_the_clamps(tmp_path, width, across):
    """S35: ComputeMaxPatchWidth returns a CeilLog2(width) bounded by the clamps at HAL+0x400 and 0x410; SetPatchWidth
    writes four bits. Published programs of h16g show 7 at 128 columns, and 9 at 512, 1024 and 2048."""
    a, b = (af.input((1, 1, 64, width), name=name) for name in "ab")
    path = tmp_path / "add.hwx"
    af.compile(a + b, target="m4").save(str(path))
    from aneforge.codegen.anec import read_compiled

    words = [
        value
        for task in read_compiled(str(path)).tasks
        for _, value, at in task.written()
        if at and at.name == "PatchCfg"
    ]
    assert {word & 0xF for word in words} == {across}


def test_patch_width_of_a_max_pool_has_a_clamp_of_its_own():
    """S35 table 35.6: 0x3f8 is the clamp for max-pool; no source gives its value (U161)."""
    from aneforge.chips.assumed import compile_fact

    clamp = compile_fact(af.target("m4"), "patch_width_clamp_maxpool")
    assert (clamp.confidence, clamp.conflict_id) == ("inferred", "U161")


# Image ports (S35, S24 field 0x668).


def test_yuv_ports_are_taken_by_the_a15_tier_alone():
    """S35: A15 is the only tier whose per-chip interchange-format table accepts YUV420 image input."""
    luma, chroma = af.image_input((1, 1, 8, 6), format="&8f0", name="photo")
    assert chroma.shape == (1, 2, 4, 3)
    taking = set()
    for chip in all_targets(only_28=True):
        if not chip.is_reference:
            try:
                af.compile([luma, chroma], target=chip.name)
                taking.add(chip.family5.name)
            except af.CompileError as error:
                assert "image port of format &8f0 is not published" in str(error) or "H13+" in str(error)  # noqa: PT017
    assert taking == {"A15"}


@pytest.mark.parametrize(("tag", "channels", "pixel"), [("&BGA", 4, 255), ("&L0h", 1, 0.5), ("&RhA", 4, 0.5)])
def test_image_ports_by_format(tag, channels, pixel):
    port = af.image_input((1, channels, 4, 4), format=tag, name="photo")
    assert af.preflight(port.relu(), "m1").ok == (tag != "&RhA")
    assert af.preflight(port.relu(), "m5").ok
    kind = np.uint8 if pixel == 255 else np.float16
    got = af.compile(port.relu(), target="m2")(np.full((1, channels, 4, 4), pixel, kind))
    np.testing.assert_allclose(got, 1.0 if pixel == 255 else 0.5, atol=1e-3)


@pytest.mark.parametrize(
    ("tag", "shape", "message"),
    [
        ("BGRA", (1, 4, 4, 4), "'BGRA': not an image format; nearest: "),
        ("&BGA", (1, 3, 4, 4), r"the first plane of &BGA is \[N, 4, H, W\], not \[1, 3, 4, 4\]"),
        ("&8v0", (1, 1, 5, 4), "5 x 4 must be even"),
        ("&L16", (1, 1, 4, 4), "&L16 holds uint16; ports must be uint8 or fp16"),
    ],
)
def test_unknown_image_formats_are_one_line(tag, shape, message):
    with pytest.raises(af.GraphError, match=message) as caught:
        af.image_input(shape, format=tag)
    assert "\n" not in str(caught.value)


# Ring buffers and the nine allocation types (S22 table 22.2).


def test_ring_buffers_reach_allocation_6_and_never_7():
    """S22: 6 is ring-buffer resident. 7 needs a chained producer; rings run on no engine that is chained (U162)."""
    from aneforge.compiler.memory.allocation import Allocation
    from aneforge.compiler.schedule.groups import _COMPUTE
    from aneforge.compiler.schedule.layers import _RINGS, _class_of

    x = af.input((1, 8, 4, 4), name="x")
    model = x + af.ring_read(af.live_state((1, 8, 4, 5), "cache"), 3, 4)
    states = [layer.allocation for layer in af.compile(model, target="m2").program.layers]
    assert Allocation.RING in states
    assert not {_class_of(f"anec.{kind}") for kind in _RINGS} & set(_COMPUTE)
    kernel = np.ones((8, 8, 1, 1))
    written = af.ring_write(af.conv(af.conv(x, kernel).relu(), kernel), af.live_state((1, 8, 4, 8), "cache"), 2)
    program = af.compile(written, target="m2").program
    assert Allocation.RING_DEPENDENT not in {layer.allocation for layer in program.layers}
    assert "U162" in store.load("choices")["choices"]


# Host detection (SXC): the environment names a target, not a family.


@pytest.mark.parametrize("name", ["h17s", "h16g", "m2", "h13g"])
def test_the_environment_names_the_target_of_a_compile(name, monkeypatch):
    """SXC: ANEFORGE_TARGET is an arch string and an explicit override."""
    monkeypatch.setenv("ANEFORGE_TARGET", name)
    assert af.compile(af.input((1, 4, 8, 8)).relu()).target.name == af.target(name).name


# The gain-offset guard (S22 table 22.3).


def test_the_goc_guard_stands_on_the_rewrite_that_it_guards():
    """S22: the elementwise-to-GOC rewrite needs exactly one live operand and one constant operand; add(conv_a, conv_b)
    stays a real anec.add engine layer."""
    x = af.input((1, 8, 8, 8), name="x")
    kernel = RNG.normal(size=(8, 8, 3, 3))
    a, b = af.conv(x, kernel, pad=1), af.conv(x, kernel * 2, pad=1)
    joined = (a + b).named("joined")
    biased = (joined.relu() + 1.5).named("biased")
    model = af.compile(biased, target="m2")
    assert "add" in [layer.op for layer in model.program.layers]
    story = model.explain("joined")
    assert story.barrier == "Must have 2 inputs when convert EW to GOC"
    assert 'not folded: both operands are computed ("Must have 2 inputs when convert EW to GOC")' in str(story)
    assert not model.explain("biased").barrier
