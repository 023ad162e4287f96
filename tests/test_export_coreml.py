"""Core ML out: what was written reads back as the same graph, to the bit, and passes coremltools' own checks."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import test_graph_ops
from test_lower import built

import aneforge as af
from aneforge.compiler.legal.table import REWRITES
from aneforge.errors import AneforgeError
from aneforge.formats.exports import ExportError
from aneforge.formats.exports.mil import REFUSED, RULES
from aneforge.graph import definitions
from aneforge.graph.codecs.encoding import encode
from aneforge.graph.encoding import Encoded

pytest.importorskip("coremltools")
RNG = np.random.default_rng(8)

# Numbers among the attributes are fp16 in the file, so an alpha of 0.3 comes back as 0.30004883.
ROUNDED = {"elu", "leaky_relu", "scaled_tanh", "threshold", "clamped_relu", "sigmoid_hard", "linear_activation"}
# The language lacks these; what stands in for them rounds at other places than the engine's own layer.
WRITTEN_OUT = {"rms_norm"}
EXPORTED = {each.op: each for each in reversed(test_graph_ops.CASES) if each.op in RULES}


def half(*shape, scale=0.3):
    return (RNG.standard_normal(shape) * scale).astype(np.float16)


def test_every_op_is_exported_rewritten_or_refused_with_a_reason():
    leaves = {"input", "parameter", "const", "host"}
    drawn = {"dropout", "random_normal", "random_uniform"}
    assert set(definitions()) - leaves == set(RULES) | set(REFUSED) | (
        {row.op for row in REWRITES.values() if row.phase == 0} - drawn
    )
    assert set(RULES).isdisjoint(REFUSED)
    assert set(RULES) - {"cast"} == set(EXPORTED) - {"cast"}


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_every_op_comes_back_with_its_numbers(name, tmp_path):
    graph, arrays = built(EXPORTED[name])
    af.export_coreml(graph, tmp_path / "x.mlpackage")
    back = af.load(tmp_path / "x.mlpackage")
    one, two = (af.evaluate(each, arrays)[0] for each in (graph, back))
    loose = name in ROUNDED | WRITTEN_OUT  # epsilons and slopes are fp16 in the file
    bound = {"rtol": 1e-3, "atol": 2e-4} if loose else {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(np.asarray(two, float), np.asarray(one, float), **bound)
    if name in ROUNDED | WRITTEN_OUT | {"sdpa"} or not af.preflight(graph, "m5").ok:
        return  # attention in a file is products and a softmax, which round differently from the layer
    for chip in ("m1", "m5"):
        if af.preflight(graph, chip).ok:
            given = [np.asarray(each, np.float16) for each in arrays]
            models = [af.compile(each, target=chip) for each in (graph, back)]
            np.testing.assert_array_equal(models[0](*given), models[1](*given))


def network():
    x = af.input((1, 16, 12, 12), name="image")
    y = af.conv(x, half(32, 16, 3, 3), pad=1, stride=2).relu().named("stem/conv")
    y = y + af.conv(y, half(32, 1, 3, 3), pad=1, groups=32).silu()
    rows = y.mean((2, 3)).reshape(1, 32)
    return (
        rows.layer_norm(np.ones(32), half(32), 1e-3)
        .linear(half(10, 32), half(10))
        .softmax(-1)
        .named("head/probabilities")
    )


def test_a_network_has_the_same_bits_on_every_chip(tmp_path):
    out, data = network(), half(1, 16, 12, 12, scale=1.0)
    told = af.export_coreml(out, tmp_path / "net.mlpackage")
    back = af.load(tmp_path / "net.mlpackage")
    assert told.names["stem_conv"] == "stem/conv"
    assert {"image", "stem_conv", "head_probabilities"} <= set(back.names().values())
    for chip in ("m1", "m2", "m5", "m6"):
        one, two = (af.compile(each, target=chip)(data) for each in (out, back))
        np.testing.assert_array_equal(one, two)
        assert [r.ok for r in (af.preflight(out, chip), af.preflight(back, chip))] == [True, True]


def test_rewrites_of_a_target_are_in_the_package(tmp_path):
    """An M1 has no sine: what the compiler puts in its place is written, and the package is native there."""
    out = af.input((2, 8), name="x").sin().named("y")
    told = af.export_coreml(af.compile(out, target="m1"), tmp_path / "m1.mlpackage")
    assert any(each.startswith("y: sin-horner") for each in told.rewritten)
    back = af.load(tmp_path / "m1.mlpackage")
    assert "sin" not in {each.op for each in back}
    assert not af.preflight(back, "m1").decompose
    data = half(2, 8, scale=2.0)
    np.testing.assert_array_equal(af.compile(back, target="m1")(data), af.compile(out, target="m1")(data))
    plain = af.export_coreml(out, tmp_path / "any.mlpackage")
    assert plain.rewritten == ()
    assert "sin" in {each.op for each in af.load(tmp_path / "any.mlpackage")}


def test_the_package_has_what_check_names(tmp_path):
    """Rewrites of both phases are in the package, one line for each kind."""
    x = af.input((1, 3, 64, 64), name="image")
    y = af.upsample_bilinear(af.conv(x, half(8, 3, 16, 16), stride=16).named("patches")).named("up")
    y = af.conv(y, half(8, 8, 7, 7), stride=6, pad=3).named("strided")
    y = af.pad(y, ((0, 0), (0, 0), (1, 0), (0, 1)), mode="reflect").named("mirrored").sin().named("s")
    told = af.export_coreml(y, tmp_path / "net.mlpackage", "m1")
    named = {(entry.name, entry.rewrite) for entry in af.preflight(y, "m1").decompose}
    assert {(record.node, record.rewrite) for record in told.changes} == named
    assert {rewrite for _, rewrite in named} == {
        *("patch-blocks", "resize-deconvolution", "stride-blocks", "mirror-views", "sin-horner")
    }
    assert told.left == told.refused == ()
    assert "  rewritten (patch-blocks): patches\n" in str(told)
    back = af.load(tmp_path / "net.mlpackage")
    assert not af.preflight(back, "m1").decompose
    data = half(1, 3, 64, 64, scale=1.0)
    one, two = (af.compile(each, target="m1")(data) for each in (y, back))
    np.testing.assert_allclose(np.asarray(two, float), np.asarray(one, float), rtol=0, atol=2e-3)


def test_what_a_package_cannot_say_and_what_a_chip_refuses_is_named(tmp_path):
    spread = af.conv(af.input((1, 4, 8, 90), name="map"), half(5, 4, 1, 2), (1, 5), 0, (1, 80)).named("spread")
    told = af.export_coreml(spread, tmp_path / "a.mlpackage", "m1")
    assert [record.rewrite for record in told.left] == ["stride-view"]
    assert "left to the device's compiler (stride-view): spread" in str(told)
    refused = af.export_coreml(af.input((1, 20000), name="long").relu().named("r"), tmp_path / "b.mlpackage", "m1")
    assert refused.refused == ("r",)
    assert "refused by the chip (aneforge check says why): r" in str(refused)


def encoded_weights():
    codes = RNG.integers(-128, 128, (16, 8)).astype(np.int8)
    mask = RNG.random((16, 8)) < 0.5
    return {
        "int8": Encoded.affine(codes, half(16, scale=0.01) + np.float16(0.05), axis=0),
        "asymmetric": Encoded.affine(codes, np.float16(0.02), np.int8(3)),
        "lut4": Encoded.palette(RNG.integers(0, 16, (16, 8)).astype(np.uint8), half(16), 4),
        "lut6": Encoded.palette(RNG.integers(0, 64, (16, 8)).astype(np.uint8), half(64), 6),
        "grouped": Encoded.palette(RNG.integers(0, 4, (16, 8)).astype(np.uint8), half(4, 1, 4, 1), 2),
        "sparse": Encoded.sparse(mask, half(int(mask.sum()))),
        "blockwise": Encoded.blockwise(codes, half(16, 2, scale=0.01) + np.float16(0.05)),
        "int4": Encoded.blockwise(RNG.integers(-8, 8, (16, 8)).astype(np.int8), half(4, 2) + np.float16(1), bits=4),
        "uint4": Encoded.blockwise(
            RNG.integers(0, 16, (16, 8)).astype(np.uint8), half(16, 2) + np.float16(1), np.full((16, 2), 7), bits=4
        ),
    }


@pytest.mark.parametrize("name", encoded_weights())
def test_weights_keep_their_form(name, tmp_path):
    weight = encoded_weights()[name]
    out = af.input((3, 8), name="x").linear(weight).named("y")
    told = af.export_coreml(out, tmp_path / "x.mlpackage")
    assert told.encodings == {weight.name: 1}
    (found,) = [each for each in af.load(tmp_path / "x.mlpackage").weights.values() if each.encoded]
    assert found.encoding == weight.name
    np.testing.assert_array_equal(found.array, weight.decode().astype(np.float16))


@pytest.mark.parametrize(("form", "written"), [("sparse-lut4", "sparse"), ("fp8-e4m3", "fp16")])
def test_forms_that_the_file_lacks_keep_their_numbers(form, written, tmp_path):
    numbers = half(16, 8)
    numbers[:, ::2] = 0
    weight = encode(numbers, form)
    told = af.export_coreml(af.input((3, 8), name="x").linear(weight).named("y"), tmp_path / "x.mlpackage")
    assert told.encodings == {written: 1}
    (found,) = af.load(tmp_path / "x.mlpackage").weights.values()
    np.testing.assert_array_equal(found.array, weight.decode(np.float16))


def test_states_are_states_of_the_package(tmp_path):
    cache, new = af.input((1, 4, 8), name="cache"), af.input((1, 4, 8), name="x")
    after = (cache * 0.5 + new).named("cache_out")
    graph = af.Graph([after.softmax(-1).named("y"), after], states={"cache": "cache_out"})
    af.export_coreml(graph, tmp_path / "x.mlpackage")
    back = af.load(tmp_path / "x.mlpackage")
    assert list(back.states) == ["cache"]
    feeds = {"cache": half(1, 4, 8), "x": half(1, 4, 8)}
    one = dict(zip((each.name for each in graph.outputs), af.evaluate(graph, feeds), strict=True))
    two = dict(zip((each.name for each in back.outputs), af.evaluate(back, feeds), strict=True))
    np.testing.assert_array_equal(two["y"], one["y"])
    np.testing.assert_array_equal(two[back.states["cache"]], one["cache_out"])


def test_apples_own_tools_read_the_package(tmp_path):
    """coremltools loads the spec and builds every op again with its type checks; nothing runs."""
    af.export_coreml(network(), tmp_path / "net.mlpackage")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import coremltools
        from coremltools.converters.mil.frontend.milproto.load import load

        model = coremltools.models.MLModel(str(tmp_path / "net.mlpackage"), skip_model_load=True)
        spec = model.get_spec()
        program = load(spec, spec.specificationVersion, model.weights_dir)
    kinds = [op.op_type for op in program.functions["main"].operations]
    assert kinds.count("conv") == 2
    assert [port.name for port in spec.description.input] == ["image"]
    assert [port.name for port in spec.description.output] == ["head_probabilities"]


def test_what_cannot_be_written(tmp_path):
    x = af.input((4, 8), name="x")
    file = tmp_path / "x.mlpackage"
    with pytest.raises(ExportError, match=r"tops \(sort \[4, 8\]\): Core ML sorts by integer positions"):
        af.export_coreml(af.sort(x).named("tops"), file)
    with pytest.raises(ExportError, match=r"ends in \.mlpackage"):
        af.export_coreml(x.relu(), tmp_path / "x.mlmodel")
    with pytest.raises(ExportError, match=r"does not exist\. Create it"):
        af.export_coreml(x.relu(), tmp_path / "absent" / "x.mlpackage")
    with pytest.raises(ExportError, match="the graph has no inputs, so it is a constant"):
        af.export_coreml(af.const(np.ones((2, 2))) + 1.0, file)
    with pytest.raises(AneforgeError, match="the port takes bytes"):
        af.export_coreml(af.image_input((1, 3, 4, 4)), file)
    assert list(tmp_path.iterdir()) == []  # nothing half-written
    af.export_coreml(x.relu(), file)
    with pytest.raises(ExportError, match="the package exists"):
        af.export_coreml(x.relu(), file)
    assert af.export_coreml(x.tanh(), file, overwrite=True).ops == 1
    assert [each.op for each in af.load(file).operations] == ["tanh"]


def test_the_command(tmp_path):
    out = network()
    af.Graph([out]).save(tmp_path / "net.af")
    words = ["export", str(tmp_path / "net.af"), "--out", str(tmp_path / "net.mlpackage"), "--target", "m1"]
    done = subprocess.run([sys.executable, "-m", "aneforge", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "not run on a device here" in done.stdout
    assert done.stderr == ""
    assert af.load(tmp_path / "net.mlpackage").outputs[0].shape == (1, 10)


def test_quantised_layers_have_the_same_bits_on_every_chip(tmp_path):
    """Codes between quantisers are the language's own; those that another op reads are cast. Scales are fp16."""
    x = af.input((1, 8, 6, 6), name="image")
    codes = RNG.integers(-128, 128, (6, 8, 3, 3)).astype(np.int8)
    few = RNG.integers(0, 16, (5, 6, 1, 1)).astype(np.uint8)
    q = af.quantize(x, 0.0625, 3)
    y = af.conv(af.dequantize(q, 0.0625, 3), Encoded.affine(codes, half(6, scale=0.01), axis=0), pad=1)
    table = np.arange(-8, 8).astype(np.float16)
    line = np.abs(half(5, 1, 1, 1, scale=0.1)) + np.float16(0.01)
    y = af.conv(af.dequantize(af.quantize(y, 0.5, 100, "uint8"), 0.5, 100), Encoded.palette(few, table, 4, scale=line))
    out = [y.named("y"), (q.max_pool(2, 2) + 1.0).named("picked")]
    af.export_coreml(out, tmp_path / "net.mlpackage")
    back = af.load(tmp_path / "net.mlpackage")
    assert sorted(each.op for each in back).count("quantize") == 2
    assert sorted(weight.encoding for weight in back.weights.values() if weight.encoded) == ["int8", "lut4"]
    data = half(1, 8, 6, 6, scale=3.0)
    for chip in ("m1", "m2", "m5", "h18g"):
        one, two = (af.compile(each, target=chip).run({"image": data}).outputs for each in (out, back))
        for name in ("y", "picked"):
            np.testing.assert_array_equal(one[name], two[name])
