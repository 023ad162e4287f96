# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""MIL text, as compiled models hold it, and what can be wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coreml_kit import mb, numbers, package, storage

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats import coreml

X = numbers(1, 4, 6, 8)

TEXT = """program(1.3)
[buildInfo = dict<string, string>({{"coremlc-component-MIL", "3510.2.1"}, {"coremlc-version", "3505.4.1"}})]
{
    // a comment
    func main<ios18>(tensor<fp16, [1, 4, 6, 8]> x) {
        string pt = const()[name = string("pt"), val = string("custom")];
        tensor<int32, [2]> st = const()[name = string("st"), val = tensor<int32, [2]>([1, 2])];
        tensor<int32, [4]> pd = const()[name=string("pd"), val=tensor<int32, [4]>([1,1,0,1])];
        tensor<fp16, [5, 4, 3, 3]> W = const()[name = string("W"), val = tensor<fp16, [5, 4, 3, 3]>(BLOBFILE(path =
            string("@model_path/weights/weight.bin"), offset = uint64(64)))];
        tensor<fp16, [5]> B = const()[val = tensor<fp16, [5]>([0x1p+0, -0x1.8p-1, 0.5, 2, 1e-1])];
        tensor<fp16, [1, 5, 6, 4]> y = conv(bias = B, pad = pd, pad_type = pt, strides = st, weight = W, x = x)[name =
            string("stem")];
        tensor<int32, []> n = const()[val = tensor<int32, []>(2)];
        tensor<fp16, [1, 5, 6, 2]> a, tensor<fp16, [1, 5, 6, 2]> b = split(axis = int32(-1), num_splits = n, x = y)[
            name = string("halves")];
        bool no = const()[val = bool(false)];
        tensor<fp16, [1, 10, 6, 2]> z = concat(axis = int32(1), interleave = no, values = (a, b))[name = string("z")];
    } -> (z, a);
}
"""


def text_model(folder: Path, source: str = TEXT) -> Path:
    (folder / "weights").mkdir(exist_ok=True)
    writer = storage()._BlobStorageWriter(str(folder / "weights/weight.bin"))
    writer.write_fp16_data(numbers(5, 4, 3, 3).astype(np.float16).view(np.uint16).reshape(-1))
    del writer
    (folder / "model.mil").write_text(source)
    return folder / "model.mil"


def test_mil_text_says_the_same_as_the_program_that_it_prints(tmp_path: Path) -> None:
    def build(x: Any) -> Any:
        bias = np.float32([1, -0.75, 0.5, 2, 0.1])
        y = mb.conv(x=x, weight=numbers(5, 4, 3, 3), bias=bias, pad_type="custom", pad=[1, 1, 0, 1], strides=[1, 2])
        a, b = mb.split(x=y, num_splits=2, axis=-1)
        return mb.concat(values=(a, b), axis=1), mb.identity(x=a)

    text = coreml.read_text(text_model(tmp_path))
    binary = coreml.read(package(tmp_path, build, [X]))
    assert [each.name for each in text.outputs] == ["z", "a"]
    assert "y" in {each.name for each in text}
    for ours, theirs in zip(af.evaluate(text, [X]), af.evaluate(binary, [X]), strict=True):
        np.testing.assert_allclose(ours, theirs)


OLD = """program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "3304.7.2"}})]
{
    func main<ios16>(tensor<fp32, [?, 4]> x) [FlexibleShapeInformation = tuple<tuple<tensor<string, []>,
    dict<tensor<string, []>, tensor<int32, [?]>>>>((("DefaultShapes", {{"x", [3, 4]}})))] {
            tensor<string, []> to = const()[name = tensor<string, []>("to"), val = tensor<string, []>("fp16")];
            tensor<fp16, [?, 4]> x16 = cast(dtype = to, x = x)[name = tensor<string, []>("cast_0")];
            tensor<fp16, [?, 4]> y = relu(x = x16)[name = tensor<string, []>("op_3_cast")];
        } -> (y);
}
"""


def test_older_text_and_default_shapes(tmp_path: Path) -> None:
    graph = coreml.read_text(text_model(tmp_path, OLD))
    assert graph.outputs[0].shape == (3, 4)
    assert coreml.read_text(tmp_path / "model.mil", dims={"x[0]": 5}).outputs[0].shape == (5, 4)
    with pytest.raises(LoadError, match=r"dimension 0 of input 'x' is 'x\[0\]', not a number; give it a value"):
        coreml.read_text(text_model(tmp_path, OLD.replace("DefaultShapes", "Other")))


STATE = """program(1.3)
{
    func main<ios18>(state<tensor<fp16, [2, 3]>> s, tensor<fp16, [2, 3]> x) {
        tensor<fp16, [2, 3]> held = read_state(input = s)[name = string("held")];
        tensor<fp16, [2, 3]> sum = add(x = held, y = x)[name = string("sum")];
        write_state(data = sum, input = s)[name = string("kept")];
        tensor<fp16, [2, 3]> y = mul(x = sum, y = fp16(0x1p+1))[name = string("y")];
    } -> (y);
}
"""


def test_states_in_text(tmp_path: Path) -> None:
    graph = coreml.read_text(text_model(tmp_path, STATE))
    assert graph.states == {"s": "s_out"}
    y, kept = af.evaluate(graph, {"s": np.ones((2, 3)), "x": np.full((2, 3), 2.0)})
    assert (y == 6).all()
    assert (kept == 3).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("program(1.3)", "programme(1.3)", "line 1: expected 'program', got 'programme'"),
        ("conv(bias", "warp(bias", r"y \(warp, line 12\): op 'warp' is not supported"),
        ("weight = W,", "weight = V,", r"y \(conv, line 12\): reads 'V', which no input"),
        ("[1, 5, 6, 4]> y", "[1, 5, 6, 5]> y", r"y \(conv, line 12\): gives \[1, 5, 6, 4\], but the file states"),
        ("uint64(64)", "uint64(65)", r"W \(const, line 9\): weight at 65 .*: no record can start at this offset"),
        ("uint64(64)", "uint64(640000)", "weight at 640,000"),
        ("uint64(64)", "uint64(128)", "not a weight record .*expected 0xdeadbeef"),
        ("@model_path/weights/weight.bin", "@model_path/../../etc/passwd", "points outside the model"),
        ("@model_path/weights/weight.bin", "/etc/passwd", "points outside the model"),
        ("@model_path/weights/weight.bin", "@model_path/weights/none.bin", "does not exist"),
        ("tensor<fp16, [5, 4, 3, 3]> W", "tensor<fp64, [5, 4, 3, 3> W", "expected ',', got '>'"),
        ("([1, 2])", "([1, 2, 3])", "line 7: 3 values do not fit tensor<int32, \\[2\\]>"),
        ("-> (z, a)", "-> (z, q)", "output 'q' is made by no operation"),
        ("} -> (z, a);\n}", "} -> (z, a);", "expected 'func', got 'the end'"),
        ("0x1p+0", "`", "is not MIL text"),
        ("[5, 4, 3, 3]>(BLOB", "[9999999, 999999, 3, 3]>(BLOB", "of fp16 needs 179,999,802,000,018"),
        ("val = bool(false)", "val = " + "[" * 5000, "nested more than 32 deep"),
    ],
)
def test_wrong_text_is_one_line_with_its_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in TEXT
    with pytest.raises(LoadError, match=message) as caught:
        coreml.read_text(text_model(tmp_path, TEXT.replace(old, new)))
    assert str(caught.value).startswith("model.mil: ")
    assert "\n" not in str(caught.value)


def test_text_cut_anywhere_is_refused(tmp_path: Path) -> None:
    for end in range(0, len(TEXT) - 2, 97):
        with pytest.raises(LoadError, match=r"^model.mil: "):
            coreml.read_text(text_model(tmp_path, TEXT[:end]))


def test_hostile_sizes_are_refused_before_they_are_made(tmp_path: Path) -> None:
    huge = 1 << 40
    lines = """program(1.0) { func main<ios16>(tensor<fp16, [2]> x) {
        tensor<int32, [1]> n = const()[val = tensor<int32, [1]>([2147483647])];
        tensor<fp16, [2147483647]> y = fill(shape = n, value = fp16(0x1p+0))[name = string("y")];
        tensor<fp16, [2]> z = relu(x = x)[name = string("z")]; } -> (z); }"""
    with pytest.raises(
        LoadError,
        match=r"y \(fill, line 3\): a known value has shape \[2147483647\]; the limit is",
    ):
        coreml.read_text(text_model(tmp_path, lines))
    with pytest.raises(LoadError, match=r"a tensor has 1 to 2,147,483,648 elements"):
        coreml.read_text(text_model(tmp_path, OLD.replace("[?, 4]> x)", f"[{huge}, 4]> x)")))


def test_opsets_and_versions_from_the_future_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="function 'main' uses opset ios99, which is newer than the supported opsets"):
        coreml.read_text(text_model(tmp_path, TEXT.replace("ios18", "ios99")))
    place = package(tmp_path, lambda x: mb.relu(x=x), [X])
    specification = place / "Data/com.apple.CoreML/model.mlmodel"
    data = specification.read_bytes()
    assert data[0] == 0x08  # specificationVersion, a small number
    specification.write_bytes(data[:1] + b"\x63" + data[2:])
    with pytest.raises(
        LoadError, match="specification version 99 is not supported; the newest supported version is 10"
    ):
        coreml.read(place)


LOOP = """program(1.0) { func main<ios16>(tensor<fp16, [2]> x) {
    int32 zero = const()[val = int32(0)];
    int32 n, tensor<fp16, [2]> y = while_loop(loop_vars = (zero, x))[name = string("again")]
        block0(int32 i, tensor<fp16, [2]> v) {
            bool more = less(x = i, y = int32(ROUNDS))[name = string("more")];
        } -> (more),
        block1(int32 j, tensor<fp16, [2]> w) {
            int32 next = add(x = j, y = int32(1))[name = string("next")];
            tensor<fp16, [2]> twice = mul(x = w, y = fp16(0x1p+1))[name = string("twice")];
        } -> (next, twice);
    } -> (y);
}"""


def test_loops_are_written_out_within_bounds(tmp_path: Path) -> None:
    graph = coreml.read_text(text_model(tmp_path, LOOP.replace("ROUNDS", "3")))
    np.testing.assert_allclose(af.evaluate(graph, [np.array([1.0, 2.0])])[0], [8, 16])
    with pytest.raises(LoadError, match=r"again|n \(while_loop, line 3\): this loop: 4,097 is over the budget rounds"):
        coreml.read_text(text_model(tmp_path, LOOP.replace("ROUNDS", "1000000000")))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (
            "resize_bilinear(x = x, target_size_height = int32(2147483647), target_size_width = int32(2))",
            "the target size is 2,147,483,647; it must be 1 to 65,536",
        ),
        ("expand_dims(x = x, axes = tensor<int32, [2]>([0, 0]))", "name one axis twice"),
        (
            "tile(x = x, reps = tensor<int32, [3]>([2147483647, 2147483647, 2147483647]))",
            "the limit of device addresses is 2",
        ),
        ("reshape(x = x, shape = tensor<int32, [2]>([-1, -1]))", "below one|more than one axis"),
        ("transpose(x = x, perm = tensor<int32, [3]>([0, 0, 1]))", "does not name each of 3 axes once"),
        ("conv(x = x, weight = x, strides = tensor<int32, [1]>([0]))", "model.mil"),
        (
            "slice_by_index(x = x, begin = tensor<int32, [1]>([0]), end = tensor<int32, [1]>([1]))",
            "begin has 1 values and end has 1; expected 3",
        ),
        ("gather(x = x, indices = int32(9), axis = int32(0))", "index 9 is out of range for axis 0"),
        ("relu()", "argument 'x' is missing"),
    ],
)
def test_hostile_arguments_are_one_line(op: str, message: str, tmp_path: Path) -> None:
    source = (
        "program(1.0) { func main<ios16>(tensor<fp16, [2, 3, 4]> x) {\n"
        f'tensor<fp16, [1]> y = {op}[name = string("y")]; }} -> (y); }}'
    )
    with pytest.raises(LoadError, match=message) as caught:
        coreml.read_text(text_model(tmp_path, source))
    assert str(caught.value).startswith("model.mil: y (")
    assert "\n" not in str(caught.value)
