# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Core ML files as files: packages, weight files, compressed weights, states, functions, open shapes, and
everything that can be wrong with them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coreml_kit import IOS16, IOS17, IOS18, ct, mb, numbers, package, positive, saved, storage, types

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats import coreml
from aneforge.formats.coreml.blobs import BlobWeights

X = numbers(1, 4, 6, 8)
SPECIFICATION = "Data/com.apple.CoreML/model.mlmodel"
WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin"


# Weight files.


@pytest.mark.parametrize(
    ("dtype", "method", "held", "low", "high"),
    [
        ("fp32", "float", np.float32, -100, 100),
        ("fp16", "fp16", np.uint16, 0, 30000),
        ("int8", "int8", np.int8, -128, 128),
        ("uint8", "uint8", np.uint8, 0, 256),
        ("int16", "int16", np.int16, -30000, 30000),
        ("uint16", "uint16", np.uint16, 0, 60000),
        ("int32", "int32", np.int32, -(2**30), 2**30),
        ("uint32", "uint32", np.uint32, 0, 2**31),
        ("int4", "int4", np.int8, -8, 8),
        ("uint1", "uint1", np.uint8, 0, 2),
        ("uint2", "uint2", np.uint8, 0, 4),
        ("uint3", "uint3", np.uint8, 0, 8),
        ("uint4", "uint4", np.uint8, 0, 16),
        ("uint6", "uint6", np.uint8, 0, 64),
    ],
)
def test_weight_files_read_as_coremltools_reads_them(
    dtype: str, method: str, held: Any, low: int, high: int, tmp_path: Path
) -> None:
    library, place = storage(), tmp_path / "weight.bin"
    writer = library._BlobStorageWriter(str(place))
    values = [np.random.default_rng(n).integers(low, high, n).astype(held) for n in (1, 7, 100)]
    offsets = [getattr(writer, f"write_{method}_data")(each) for each in values]
    del writer
    reader, weights = library._BlobStorageReader(str(place)), BlobWeights("m", tmp_path)
    for offset, each in zip(offsets, values, strict=True):
        found = weights.array("@model_path/weight.bin", offset, dtype, each.shape)
        theirs = np.asarray(getattr(reader, f"read_{method}_data")(offset))
        bits = found.view(np.uint16) if dtype == "fp16" else found
        np.testing.assert_array_equal(bits, theirs)
        np.testing.assert_array_equal(bits, each)


def test_whole_byte_weights_stay_mapped(tmp_path: Path) -> None:
    place = package(tmp_path, lambda x: mb.linear(x=x, weight=numbers(16, 8)), [X])
    weights = BlobWeights("m", (place / WEIGHTS).parent.parent, place)
    found = weights.array("@model_path/weights/weight.bin", 64, "fp32", (16, 8))
    base: Any = found
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    np.testing.assert_array_equal(found, numbers(16, 8))


# Compressed weights.


def compressed(tmp_path: Path, weight: Any, decoded: np.ndarray, target: Any, encoding: str) -> None:
    """A linear layer whose weight comes from a constexpr op: the numbers, and the form that the graph keeps."""
    place = package(tmp_path, lambda x: mb.linear(x=x, weight=weight()), [X], target)
    graph = coreml.read(place)
    np.testing.assert_allclose(af.evaluate(graph, [X])[0], X @ decoded.T, rtol=3e-3, atol=3e-2)
    (stored,) = graph.weights.values()
    assert stored.encoding == encoding


CODES = np.random.default_rng(0).integers(-100, 100, (6, 8)).astype(np.int8)
SCALE = (positive(6) / 16).astype(np.float32)


def test_affine_codes(tmp_path: Path) -> None:
    zero = np.arange(6).astype(np.int8)
    compressed(
        tmp_path,
        lambda: mb.constexpr_affine_dequantize(quantized_data=CODES, zero_point=zero, scale=SCALE, axis=0),
        (CODES.astype(float) - zero[:, None]) * SCALE[:, None],
        IOS16,
        "int8",
    )


@pytest.mark.parametrize("bits", [1, 2, 4, 6, 8])
def test_palettes_of_the_old_form(bits: int, tmp_path: Path) -> None:
    indices = np.random.default_rng(1).integers(0, 2**bits, (6, 8)).astype(np.uint8)
    table = numbers(2**bits, seed=5)
    places = (indices.reshape(-1, 1) >> np.arange(bits)) & 1
    packed = np.packbits(places.reshape(-1), bitorder="little")
    compressed(
        tmp_path,
        lambda: mb.constexpr_lut_to_dense(indices=packed, lut=table, shape=np.uint32([6, 8])),
        table[indices],
        IOS16,
        f"lut{bits}",
    )


def test_palettes_by_group(tmp_path: Path) -> None:
    indices = np.random.default_rng(1).integers(0, 4, (6, 8)).astype(np.uint8)
    table = numbers(2, 1, 4, 1, seed=5)
    typed = indices.astype(types.np_uint2_dtype)
    decoded = np.stack([table[i // 3, 0, indices[i], 0] for i in range(6)])
    compressed(tmp_path, lambda: mb.constexpr_lut_to_dense(indices=typed, lut=table), decoded, IOS18, "lut2")


def test_palettes_of_vectors(tmp_path: Path) -> None:
    indices = np.random.default_rng(1).integers(0, 4, (3, 8)).astype(np.uint8)
    table = numbers(1, 1, 4, 2, seed=5)
    typed = indices.astype(types.np_uint2_dtype)
    decoded = np.stack([table[0, 0, indices[i // 2], i % 2] for i in range(6)])
    weight = lambda: mb.constexpr_lut_to_dense(indices=typed, lut=table, vector_axis=np.int32(0))  # noqa: E731
    compressed(tmp_path, weight, decoded, IOS18, "lut2")


def test_blocks_of_four_bits(tmp_path: Path) -> None:
    codes = np.random.default_rng(1).integers(-8, 8, (6, 8))
    scale, offset = positive(6, 2), np.random.default_rng(2).integers(-8, 8, (6, 2))
    typed, shift = codes.astype(types.np_int4_dtype), offset.astype(types.np_int4_dtype)
    decoded = (codes - offset.repeat(4, 1)) * scale.repeat(4, 1)
    weight = lambda: mb.constexpr_blockwise_shift_scale(data=typed, scale=scale, offset=shift)  # noqa: E731
    compressed(tmp_path, weight, decoded, IOS18, "blockwise")


def test_one_scale_for_each_row_is_the_simpler_form(tmp_path: Path) -> None:
    scale = (positive(6, 1) / 16).astype(np.float32)
    weight = lambda: mb.constexpr_blockwise_shift_scale(data=CODES, scale=scale)  # noqa: E731
    compressed(tmp_path, weight, CODES * scale, IOS18, "int8")


MASK = np.random.default_rng(3).integers(0, 2, (6, 8)).astype(np.uint8)
KEPT = numbers(int(MASK.sum()), seed=4)


def dense(values: np.ndarray) -> np.ndarray:
    found = np.zeros(MASK.shape)
    found[MASK.astype(bool)] = values
    return found


def test_sparse_weights_of_both_forms(tmp_path: Path) -> None:
    packed = np.packbits(MASK.reshape(-1), bitorder="little")
    old = lambda: mb.constexpr_sparse_to_dense(nonzero_data=KEPT, mask=packed, shape=np.uint32([6, 8]))  # noqa: E731
    compressed(tmp_path, old, dense(KEPT), IOS16, "sparse")
    new = lambda: mb.constexpr_sparse_to_dense(nonzero_data=KEPT, mask=MASK.astype(types.np_uint1_dtype))  # noqa: E731
    (tmp_path / "new").mkdir()
    compressed(tmp_path / "new", new, dense(KEPT), IOS18, "sparse")


def test_sparse_palettes_and_sparse_blocks(tmp_path: Path) -> None:
    indices = np.random.default_rng(1).integers(0, 4, KEPT.size).astype(np.uint8)
    table = numbers(1, 1, 4, 1, seed=5)

    def by_table() -> Any:
        mask, values = mb.constexpr_lut_to_sparse(
            indices_mask=MASK.astype(types.np_uint1_dtype),
            indices_nonzero_data=indices.astype(types.np_uint2_dtype),
            lut=table,
        )
        return mb.constexpr_sparse_to_dense(nonzero_data=values, mask=mask)

    compressed(tmp_path, by_table, dense(table[0, 0, indices, 0]), IOS18, "sparse-lut2")
    codes, scale = np.random.default_rng(1).integers(-100, 100, KEPT.size).astype(np.int8), positive(6, 1) / 16

    def by_blocks() -> Any:
        mask, values = mb.constexpr_sparse_blockwise_shift_scale(
            data_mask=MASK.astype(types.np_uint1_dtype), nonzero_data=codes, scale=scale.astype(np.float32)
        )
        return mb.constexpr_sparse_to_dense(nonzero_data=values, mask=mask)

    (tmp_path / "blocks").mkdir()
    compressed(tmp_path / "blocks", by_blocks, dense(codes) * scale, IOS18, "sparse")


def test_a_weight_stored_in_half_precision(tmp_path: Path) -> None:
    stored = numbers(6, 8).astype(np.float16)
    weight = lambda: mb.constexpr_cast(source_val=stored, output_dtype="fp32")  # noqa: E731
    compressed(tmp_path, weight, stored.astype(float), IOS16, "fp16")


# States, functions, open shapes, labels.


def cache_program() -> Any:
    specs = [mb.TensorSpec((1, 4), dtype=types.fp16), mb.StateTensorSpec((3, 4), dtype=types.fp16)]

    @mb.program(input_specs=specs, opset_version=IOS18)
    def program(x: Any, cache: Any) -> Any:
        held = mb.read_state(input=cache)
        moved = mb.concat(values=(mb.slice_by_index(x=held, begin=[1, 0], end=[3, 4]), x), axis=0, name="moved")
        fresh = mb.coreml_update_state(state=cache, value=moved)
        return mb.reduce_sum(x=fresh, axes=[0], keep_dims=True, name="total")

    return program


def test_a_state_is_an_input_and_its_new_value_an_output(tmp_path: Path) -> None:
    saved(cache_program(), tmp_path / "cache.mlpackage", IOS18)
    graph = coreml.read(tmp_path / "cache.mlpackage")
    assert graph.states == {"cache": "cache_out"}
    held, x = numbers(3, 4), numbers(1, 4, seed=3)
    total, moved = af.evaluate(graph, {"x": x, "cache": held})
    np.testing.assert_allclose(moved, np.concatenate([held[1:], x]))
    np.testing.assert_allclose(total, moved.sum(0, keepdims=True))


def test_a_program_of_several_functions(tmp_path: Path) -> None:
    for name, op in (("up", "relu"), ("down", "exp")):
        package(tmp_path / name, lambda x, op=op: getattr(mb, op)(x=x), [X], IOS18)
    told = ct.utils.MultiFunctionDescriptor()
    for name in ("up", "down"):
        told.add_function(
            str(tmp_path / name / "model.mlpackage"), src_function_name="main", target_function_name=name
        )
    told.default_function_name = "down"
    place = tmp_path / "both.mlpackage"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ct.utils.save_multifunction(told, str(place))
    assert coreml.read(place).outputs[0].op == "exp"
    assert coreml.read(place, function="up").outputs[0].op == "relu"
    with pytest.raises(LoadError, match=r"both.mlpackage: no function 'side'; choose one: down, up"):
        coreml.read(place, function="side")


def open_program(shape: Any, tmp_path: Path) -> Path:
    symbol = ct.converters.mil.mil.get_new_symbol()

    @mb.program(input_specs=[mb.TensorSpec((symbol, 4), dtype=types.fp32)], opset_version=IOS17)
    def program(x: Any) -> Any:
        rows = mb.slice_by_index(x=mb.shape(x=x), begin=[0], end=[1])
        return mb.reshape(x=x, shape=mb.concat(values=(rows, np.int32([2, 2])), axis=0), name="blocks")

    place = tmp_path / "open.mlpackage"
    saved(program, place, IOS17, inputs=[ct.TensorType(name="x", shape=shape)])
    return place


def test_open_shapes_have_a_default_and_take_dims(tmp_path: Path) -> None:
    place = open_program((ct.RangeDim(1, 9, default=3), 4), tmp_path)
    assert coreml.read(place).outputs[0].shape == (3, 2, 2)
    assert coreml.read(place, dims={"x[0]": 7}).outputs[0].shape == (7, 2, 2)
    with pytest.raises(LoadError, match=r"x\[0\] is 12; the model allows 1 to 9"):
        coreml.read(place, dims={"x[0]": 12})
    with pytest.raises(LoadError, match=r"no symbolic dimension 'x\[1\]'; the inputs have x\[0\]"):
        coreml.read(place, dims={"x[1]": 4})


def test_enumerated_shapes_are_the_only_ones(tmp_path: Path) -> None:
    place = open_program(ct.EnumeratedShapes([(2, 4), (5, 4)], default=(5, 4)), tmp_path)
    assert coreml.read(place).outputs[0].shape == (5, 2, 2)
    assert coreml.read(place, dims={"x[0]": 2}).outputs[0].shape == (2, 2, 2)
    with pytest.raises(LoadError, match=r"input 'x' of \[3, 4\]; the model allows \[[25], 4\], \[[25], 4\]"):
        coreml.read(place, dims={"x[0]": 3})


def test_fixed_inputs_are_folded(tmp_path: Path) -> None:
    place = package(tmp_path, lambda x, y: mb.gather(x=x, indices=y, axis=1), [X, np.int32([2, 0])])
    (lookup,) = coreml.read(place).operations
    assert (lookup.op, lookup.attrs["kind"]) == ("host", "gather")
    assert lookup.attrs["reason"].startswith("'indices' is computed while the program runs")
    graph = coreml.read(place, fixed={"y": np.int32([2, 0])})
    assert [each.op for each in graph.operations] == ["gather"]
    with pytest.raises(LoadError, match="no input 'q' to fix; the inputs are x, y"):
        coreml.read(place, fixed={"q": 1})


def test_a_classifier_gives_its_probabilities(tmp_path: Path) -> None:
    @mb.program(input_specs=[mb.TensorSpec((1, 4))], opset_version=IOS17)
    def program(x: Any) -> Any:
        return mb.softmax(x=mb.linear(x=x, weight=numbers(3, 4)), name="p")

    place = tmp_path / "cats.mlpackage"
    saved(program, place, IOS17, classifier_config=ct.ClassifierConfig(["cat", "dog", "cow"]), pass_pipeline=None)
    graph = coreml.read(place)
    assert [each.shape for each in graph.outputs] == [(1, 3)]
    (found,) = af.evaluate(graph, [numbers(1, 4)])
    assert found.sum() == pytest.approx(1)


def test_names_and_numbers_of_a_small_network_on_a_chip(tmp_path: Path) -> None:
    def build(x: Any) -> Any:
        a = mb.conv(x=x, weight=numbers(8, 4, 3, 3), pad_type="same", name="stem")
        b = mb.relu(x=a, name="bend")
        return mb.reduce_mean(x=b, axes=[2, 3], keep_dims=True, name="mean")

    place = package(tmp_path, build, [X], compute_precision=ct.precision.FLOAT16, pass_pipeline=None)
    graph = coreml.read(place)
    assert {"stem", "bend", "mean"} <= {str(each.name).removesuffix("_cast_fp16") for each in graph}
    model = af.compile(graph, target="m1")
    np.testing.assert_allclose(model(X), af.evaluate(graph, [X])[0], rtol=1e-2, atol=1e-2)


def test_reading_needs_no_import_of_coremltools(tmp_path: Path) -> None:
    place = package(tmp_path, lambda x: mb.relu(x=x), [X])
    code = (
        "import sys; from pathlib import Path; from aneforge.formats import coreml; "
        f"print(coreml.read(Path({str(place)!r})).outputs[0].op); "
        "assert 'coremltools' not in sys.modules; import coremltools.proto.Model_pb2"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "relu", done.stderr


# What can be wrong with a package.


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return package(tmp_path, lambda x: mb.linear(x=x, weight=numbers(16, 8), name="fc"), [X])


def test_a_specification_cut_short_or_scrambled(whole: Path) -> None:
    place = whole / SPECIFICATION
    data = place.read_bytes()
    for end in (0, 1, 10, len(data) // 2, len(data) - 1):
        place.write_bytes(data[:end])
        with pytest.raises(LoadError, match=r"^model.mlpackage: "):
            coreml.read(whole)
    rng = np.random.default_rng(0)
    for _ in range(60):
        broken = bytearray(data)
        for spot in rng.integers(0, len(data), 3):
            broken[spot] = int(rng.integers(0, 256))
        place.write_bytes(bytes(broken))
        try:  # a change may be harmless; what must not happen is anything but one line
            coreml.read(whole)
        except LoadError as error:
            lines = str(error).splitlines()
            if len(lines) != 1:
                pytest.fail(str(error))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: "no json", "Manifest.json cannot be read"),
        (lambda m: json.dumps([1]), "Manifest.json must be a JSON object"),
        (lambda m: json.dumps({**m, "rootModelIdentifier": "x"}), "Manifest.json has no root model"),
        (lambda m: "[" * 100000, "Manifest.json cannot be read"),
        (lambda m: json.dumps(_path(m, "../../../../etc/passwd")), "points outside the package"),
        (lambda m: json.dumps(_path(m, "/etc/passwd")), "points outside the package"),
        (lambda m: json.dumps(_path(m, "nothing.mlmodel")), "the model file 'nothing.mlmodel' does not exist"),
        (lambda m: json.dumps(_path(m, 7)), "Manifest.json has no path for its root model"),
    ],
)
def test_wrong_manifests(whole: Path, change: Any, message: str) -> None:
    manifest = whole / "Manifest.json"
    manifest.write_text(change(json.loads(manifest.read_text())))
    with pytest.raises(LoadError, match=message):
        coreml.read(whole)


def _path(manifest: dict[str, Any], path: Any) -> dict[str, Any]:
    manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"] = path
    return manifest


def test_links_out_of_a_package_are_refused(whole: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    for inside, message in ((WEIGHTS, "points outside the model"), (SPECIFICATION, "points outside the package")):
        outside.write_bytes((whole / inside).read_bytes())
        (whole / inside).unlink()
        (whole / inside).symlink_to(outside)
        with pytest.raises(LoadError, match=message):
            coreml.read(whole)


def _record(**changes: int) -> Any:
    """A weight file whose first record says something else."""

    def change(data: bytes) -> bytes:
        fields = dict(
            zip(("sentinel", "dtype", "size", "start", "padding"), struct.unpack("<IIQQQ", data[64:96]), strict=False)
        )
        fields |= changes
        return data[:64] + struct.pack("<IIQQQ", *fields.values()) + data[96:]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:40], "is truncated"),
        (lambda data: data[:100], "no record can start at this offset"),
        (lambda data: data[:300], "the data ends at byte 640, but the file has 300 bytes"),
        (lambda data: b"\1\0\0\0\7\0\0\0" + data[8:], "storage format 7; only 2 is supported"),
        (_record(sentinel=7), r"not a weight record \(it starts with 0x7; expected 0xdeadbeef\)"),
        (_record(dtype=1), "the file stores fp16, but the program states fp32"),
        (_record(dtype=99), "the file stores type 99, but the program states fp32"),
        (_record(size=8), r"the record has 8 bytes; \[16, 8\] of fp32 needs 512"),
        (_record(size=2**63), r"bytes; \[16, 8\] of fp32 needs 512"),
        (_record(start=2**63), "the data ends at byte"),
    ],
)
def test_wrong_weight_files_name_the_weight(whole: Path, change: Any, message: str) -> None:
    place = whole / WEIGHTS
    place.write_bytes(change(place.read_bytes()))
    with pytest.raises(LoadError, match=rf"^model.mlpackage: fc_weight_0 \(const\): .*{message}"):
        coreml.read(whole)


def test_missing_files(whole: Path, tmp_path: Path) -> None:
    (whole / WEIGHTS).unlink()
    with pytest.raises(LoadError, match=r"fc_weight_0 \(const\): weight file .*weight.bin' does not exist"):
        coreml.read(whole)
    with pytest.raises(LoadError, match=r"absent.mlmodel': no such file"):
        coreml.read(tmp_path / "absent.mlmodel")
    (tmp_path / "empty.mlpackage").mkdir()
    with pytest.raises(LoadError, match=r"empty.mlpackage: not a Core ML package; a package has a Manifest.json"):
        coreml.read(tmp_path / "empty.mlpackage")


def test_an_op_without_a_rule_names_itself_and_why(tmp_path: Path) -> None:
    place = package(tmp_path, lambda x: mb.non_zero(x=x, name="where"), [numbers(4)])
    with pytest.raises(LoadError, match=r"model.mlpackage: where \(non_zero\): the number of results depends"):
        coreml.read(place)


_READ_WITHOUT_COREMLTOOLS = """
import sys
sys.modules["coremltools"] = None  # an import of it fails
import aneforge as af
graph = af.load(sys.argv[1])
print(len(graph.nodes), [node.name for node in graph.outputs])
"""


def test_reading_needs_no_coremltools(whole: Path) -> None:
    """In a process of its own, where coremltools cannot be imported and no generated module is loaded."""
    command = [sys.executable, "-c", _READ_WITHOUT_COREMLTOOLS, str(whole)]
    environment = {**os.environ, "ANEFORGE_NO_CACHE": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    graph = af.load(whole)
    assert result.stdout.strip() == f"{len(graph.nodes)} {[node.name for node in graph.outputs]}", result.stderr


def test_descriptors_are_those_of_the_installed_coremltools() -> None:
    from coremltools.proto import Model_pb2

    from aneforge.formats.coreml.spec import message_class

    ours, theirs = message_class("Model").DESCRIPTOR, Model_pb2.DESCRIPTOR.message_types_by_name["Model"]
    assert {field.name: field.number for field in theirs.fields} == {field.name: field.number for field in ours.fields}


def test_without_protobuf_the_extra_is_named(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aneforge.formats.coreml import spec as proto

    def missing(name: str) -> None:
        raise ImportError("No module named 'google.protobuf'")

    monkeypatch.setattr(proto, "message_class", missing)
    with pytest.raises(
        LoadError, match=r"reading Core ML needs protobuf \(No module .*: pip install 'aneforge-compiler\[coreml\]'"
    ):
        coreml.read(whole)
