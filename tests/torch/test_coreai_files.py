# pyright: reportMissingImports=false
"""Core AI assets as files: functions, calls, loops, branches, states, names, refusals, and damage of every kind."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coreai_kit import A, Body, Ports, X, build, compare, f32, from_text, numbers, random, run, s32

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats.coreai import adapter as reader
from aneforge.formats.coreai.language import import_function, mapped_blobs
from aneforge.formats.coreai.rules import RULES
from aneforge.formats.coreai.table import common_op
from aneforge.formats.importer.op import FileOp
from aneforge.formats.records import Block, Function, Operation, Ref, ValueType
from aneforge.graph.encoding import Encoded

# Several functions, calls, branches, loops, states.

HEAD = 'coreai.graph @main(%x: tensor<1x4xf32> {coreai.name = "x"}) -> (tensor<1x4xf32> {coreai.name = "y"})'
T = "tensor<1x4xf32>"


def _same(path: Path, text: str) -> Any:
    asset = from_text(path, text)
    feeds = numbers({"x": ((1, 4), "float32")})
    graph = af.load(asset.path)
    (found,) = af.evaluate(graph, feeds)
    np.testing.assert_allclose(found, run(asset, feeds)["y"], rtol=1e-3, atol=1e-3)
    return graph


def test_calls_are_written_out(tmp_path: Path) -> None:
    inner = f"coreai.graph private noinline @twice(%x: {T}) -> ({T}) {{ %y = coreai.add %x, %x : ({T}, {T}) -> {T}\n"
    inner += f"coreai.output %y : {T} }}"
    body = f"%a = coreai.invoke @twice(%x) : ({T}) -> {T}\n %b = coreai.invoke @twice(%a) : ({T}) -> {T}\n"
    body += f"%c = coreai.relu %b : ({T}) -> {T}\n coreai.output %c : {T}"
    graph = _same(tmp_path, f"module {{ {inner}\n {HEAD} {{ {body} }} }}")
    assert [each.name for each in graph.nodes] == ["x", "twice_0/add_0", "twice_1/add_0", "y"]


def test_a_graph_that_calls_itself_is_refused(tmp_path: Path) -> None:
    inner = f"coreai.graph private noinline @again(%x: {T}) -> ({T}) {{ %y = coreai.invoke @again(%x) : ({T}) -> {T}\n"
    text = f"module {{ {inner} coreai.output %y : {T} }}\n {HEAD} {{ %a = coreai.invoke @again(%x) : ({T}) -> {T}\n "
    asset = from_text(tmp_path, f"{text} coreai.output %a : {T} }} }}")
    with pytest.raises(LoadError, match=r"again_0/again_0 \(invoke\): function 'again' calls itself"):
        af.load(asset.path)


LOOP = f"""module {{ {HEAD} {{
  %zero = coreai.constant dense<0> : tensor<si32>
  %n = coreai.constant dense<3> : tensor<si32>
  %r:2 = coreai.while %zero, %x {{
    ^bb0(%i: tensor<si32>, %v: {T}):
      %more = "coreai.not_equal"(%i, %n) : (tensor<si32>, tensor<si32>) -> tensor<i1>
      coreai.condition %more, %i, %v : (tensor<i1>, tensor<si32>, {T})
  }} do {{
    ^bb1(%i: tensor<si32>, %v: {T}):
      %one = coreai.constant dense<1> : tensor<si32>
      %next = "coreai.add"(%i, %one) : (tensor<si32>, tensor<si32>) -> tensor<si32>
      %more = "coreai.add"(%v, %v) : ({T}, {T}) -> {T}
      coreai.yield %next, %more : tensor<si32>, {T}
  }} : (tensor<si32>, {T}) -> (tensor<si32>, {T})
  coreai.output %r#1 : {T}
}} }}"""


def test_a_loop_of_known_length_is_written_out(tmp_path: Path) -> None:
    graph = _same(tmp_path, LOOP)
    assert sum(each.op == "add" for each in graph.nodes) == 3


def test_a_loop_without_end_is_refused(tmp_path: Path) -> None:
    asset = from_text(tmp_path, LOOP.replace("dense<3>", "dense<-1>"))
    with pytest.raises(LoadError, match=r"while_\d+ \(while\): this loop: 4,097 is over the budget rounds"):
        af.load(asset.path)


def _branch(condition: str) -> str:
    return f"""module {{ {HEAD} {{ {condition}
  %r = coreai.if %c {{
    %a = coreai.relu %x : ({T}) -> {T}
    coreai.yield %a : {T}
  }} else {{
    %b = coreai.add %x, %x : ({T}, {T}) -> {T}
    coreai.yield %b : {T}
  }} : tensor<i1> -> {T}
  coreai.output %r : {T}
}} }}"""


@pytest.mark.parametrize(("told", "op"), [("true", "relu"), ("false", "add")])
def test_a_known_branch(tmp_path: Path, told: str, op: str) -> None:
    graph = _same(tmp_path, _branch(f"%c = coreai.constant dense<{told}> : tensor<i1>"))
    assert [each.op for each in graph.nodes] == ["input", op]


def test_a_branch_that_is_computed_is_a_choice(tmp_path: Path) -> None:
    condition = f"""%axes = coreai.constant dense<[0, 1]> : tensor<2xsi32>
  %s = coreai.reduce_sum %x, %axes : ({T}, tensor<2xsi32>) -> tensor<1x1xf32>
  %none = coreai.constant dense<0.0> : tensor<1x1xf32>
  %g = "coreai.greater"(%s, %none) : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xi1>
  %c = coreai.shrink_dims %g, %axes : (tensor<1x1xi1>, tensor<2xsi32>) to tensor<i1>"""
    _same(tmp_path, _branch(condition))


H = f"!coreai.handle<{T}>"
STATE = f"""module {{
  coreai.graph @main(%x: {T} {{coreai.name = "x"}}, %h: {H} {{coreai.name = "cache"}})
      -> ({T} {{coreai.name = "y"}}, !coreai.token) {{
    %t0 = coreai.create_token : !coreai.token
    %d, %t1 = coreai.read_handle %h, %t0 : ({H}, !coreai.token) -> ({T}, !coreai.token)
    %s = "coreai.add"(%d, %x) : ({T}, {T}) -> {T}
    %t2 = coreai.write_handle %h, %s, %t1 : ({H}, {T}, !coreai.token) -> !coreai.token
    %e, %t3 = coreai.read_handle %h, %t2 : ({H}, !coreai.token) -> ({T}, !coreai.token)
    %y = coreai.relu %e : ({T}) -> {T}
    coreai.output %y, %t3 : {T}, !coreai.token
  }}
}}"""


def test_states_are_states_of_the_graph(tmp_path: Path) -> None:
    asset = from_text(tmp_path, STATE)
    graph = af.load(asset.path)
    assert dict(graph.states) == {"cache": "cache_out"}
    x, cache = f32([[1, -2, 3, -4]]), f32([[0.5, 0.5, -4, 8]])
    held = {"cache": cache.copy()}
    wanted = run(asset, {"x": x}, held)
    y, new = af.evaluate(graph, {"x": x, "cache": cache})
    np.testing.assert_allclose(y, wanted["y"], atol=1e-3)
    np.testing.assert_allclose(new, held["cache"], atol=1e-3)


def _reduction(kind: str, inner: str, operands: tuple[str, str], *more: np.ndarray) -> Any:
    """By records alone: the package cannot read back what it writes for these operations."""
    number, truth, result = ValueType("fp32", ()), ValueType("bool", ()), ValueType("fp32", (2, 1, 4))
    compared = Operation(inner, {"x": [Ref(operands[0])], "y": [Ref(operands[1])]}, [("r", truth)])
    block = Block([("a", number), ("b", number)], ["r"], [compared])
    operations = [
        Operation("constant", {}, [(f"c{i}", ValueType(array.dtype.name.replace("float", "fp"), array.shape))],
                  {"value": array})
        for i, array in enumerate(more)
    ]  # fmt: skip
    name, inputs, texts = common_op(kind, [Ref("x"), *(Ref(f"c{i}") for i in range(len(more)))], {}, [result])
    operations.append(Operation(name, inputs, [("y", result)], texts, [block], name="reduced"))
    function = Function([("x", ValueType("fp32", (2, 3, 4)))], Block([], ["y"], operations))
    return import_function("m", {"main": function}, "main")


@pytest.mark.parametrize(
    ("inner", "first", "function"),
    [
        ("add", 2.0, lambda x: x.sum(1) + 2),
        ("maximum", -np.inf, lambda x: x.max(1)),
        ("mul", 1.0, lambda x: x.prod(1)),
    ],
)
def test_reductions_with_a_block_of_their_own(inner: str, first: float, function: Any) -> None:
    graph = _reduction("reduce", inner, ("a", "b"), s32(1), np.array(first, np.float32))
    x = numbers(X)["x"]
    np.testing.assert_allclose(af.evaluate(graph, {"x": x})[0][:, 0], function(x.astype(np.float64)), atol=1e-3)


@pytest.mark.parametrize("largest", [True, False])
def test_positions_with_a_block_of_their_own(largest: bool) -> None:
    first, x = np.array(-np.inf if largest else np.inf, np.float32), numbers(X)["x"]
    operands = ("b", "a") if largest else ("a", "b")
    graph = _reduction("reduce_index", "greater", operands, np.array(1, np.int32), first, np.array(0, np.int32))
    wanted = x.argmax(1) if largest else x.argmin(1)
    np.testing.assert_array_equal(af.evaluate(graph, {"x": x})[0][:, 0], wanted)


def test_two_scales_of_a_palette_both_count() -> None:
    palette = Encoded.palette(np.array([[0, 1], [2, 3]], np.uint8), f32([1, 2, 3, 4]), 2)
    op = FileOp("blockwise_shift_scale", "w", {"data": [palette]}, outputs=[("y", ValueType("fp32", (2, 2)))])
    zero = np.zeros((1, 1), np.int32)
    once = RULES[op.kind](op, palette, f32([[2]]), zero, zero)
    assert once.form == "palette"
    np.testing.assert_array_equal(RULES[op.kind](op, once, f32([[3]]), zero, zero), f32([[6, 12], [18, 24]]))


def test_functions_are_picked_by_name(tmp_path: Path) -> None:
    one = f'coreai.graph @one(%x: {T} {{coreai.name = "x"}}) -> ({T} {{coreai.name = "y"}}) {{ '
    one += f'%y = "coreai.relu"(%x) : ({T}) -> {T}\n coreai.output %y : {T} }}'
    two = one.replace("@one", "@two").replace("relu", "exp")
    asset = from_text(tmp_path, f"module {{ {one}\n {two} }}")
    assert af.load(asset.path, function="two").outputs[0].op == "exp"
    with pytest.raises(LoadError, match=r"the program has 2 functions; choose one: one, two"):
        af.load(asset.path)
    with pytest.raises(LoadError, match="no function 'three'; choose one: one, two"):
        af.load(asset.path, function="three")


def test_names_that_a_tool_noted(tmp_path: Path) -> None:
    """Debug information that names operations; where several share a name, their kind tells them apart."""

    def body(x: Any) -> Any:
        def noted(name: str) -> Any:
            return A.DebugInfo.metadata_only([name])

        first = A.relu(x, loc=noted("encoder.act"))
        return A.exp(A.tanh(A.abs_(first, loc=noted("head")), loc=noted("head")), loc=noted("last"))

    graph = compare(tmp_path, body, X)
    assert [each.name for each in graph.nodes] == ["x", "encoder.act", "head/abs_1", "head/tanh_2", "y0"]


# Whole numbers are for the host.


def _embedding(ids: Any) -> Any:
    return A.relu(A.gather_nd(random(10, 4), A.expand_dims(ids, s32(-1))))


IDS: Ports = {"ids": ((1, 3), "int32")}


def test_whole_numbers_are_for_the_host(tmp_path: Path) -> None:
    asset = build(tmp_path, _embedding, IDS)
    graph = af.load(asset.path)
    ids = np.array([[7, 0, 3]], np.int32)
    (found,) = af.evaluate(graph, {"ids": ids})
    np.testing.assert_allclose(found, run(asset, {"ids": ids})["y0"], atol=1e-3)
    assert [each.op for each in graph.nodes if each.op != "const"] == ["input", "host", "host", "relu"]


def test_bytes_enter_the_engine(tmp_path: Path) -> None:
    ports: Ports = {"x": ((1, 3, 4, 4), "uint8")}
    compare(tmp_path, lambda x: A.broadcasting_mul(A.cast(x, np.float32), np.array(0.0078125, np.float32)), ports)


def _found(at: int) -> Body:
    return lambda x: A.cast(A.broadcasting_equal(A.cast(x, np.int32), np.array(at, np.int32)), np.float32)


def test_whole_numbers_that_fp16_holds_are_compared(tmp_path: Path) -> None:
    compare(tmp_path, _found(1), X)


REFUSALS: dict[str, tuple[Body, Ports, str]] = {
    "complex": (lambda x: A.real_part(A.create_complex(x, x)), X, "complex numbers"),
    "non_zero": (lambda x: A.cast(A.get_shape(A.non_zero(x)), np.float32), X, "depends on the data"),
    "statistics": (
        lambda x: A.symmetric_quant_stats(x, f32([-128, 127]), np.int32(1)),
        X,
        "depend on the data",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_file_and_operation(tmp_path: Path, name: str) -> None:
    body, ports, reason = REFUSALS[name]
    asset = build(tmp_path, body, ports)
    with pytest.raises(LoadError, match=rf"^model.aimodel: \w+ \(\w+\): .*{reason}"):
        af.load(asset.path)


def test_open_shapes_are_refused(tmp_path: Path) -> None:
    kind = "tensor<?x4xf32>"
    text = f'module {{ coreai.graph @main(%x: {kind} {{coreai.name = "x"}}) -> ({kind} {{coreai.name = "y"}}) {{ '
    asset = from_text(tmp_path, f"{text} %y = coreai.relu %x : ({kind}) -> {kind}\n coreai.output %y : {kind} }} }}")
    with pytest.raises(LoadError, match=r"input 'x' is tensor<fp32, \[\?, 4\]>; its shape must be fixed"):
        af.load(asset.path)


# Files.


def test_weights_are_mapped_from_the_file(tmp_path: Path) -> None:
    weight = random(64, 64)
    asset = build(tmp_path, lambda x: A.batch_matmul(x, weight), {"x": ((2, 64), "float32")})
    (found,) = mapped_blobs(asset.path / "main.mlirb").values()
    assert isinstance(found, np.memmap)
    assert found.size == weight.nbytes
    np.testing.assert_array_equal(found.view(np.float32).reshape(64, 64), weight)


def _asset(path: Path) -> Path:
    return Path(build(path, lambda x: A.batch_matmul(x, random(64, 64)), {"x": ((2, 64), "float32")}).path)


def _sealed(asset: Path, program: bytes) -> None:
    (asset / "main.mlirb").write_bytes(program)
    (asset / "main.hash").write_bytes(hashlib.sha256(program).digest())


def test_blobs_of_anything_else_are_none(tmp_path: Path) -> None:
    whole = (_asset(tmp_path) / "main.mlirb").read_bytes()
    place = tmp_path / "part"
    for size in (0, 1, 4, 7, *range(20, len(whole), 997)):
        place.write_bytes(whole[:size])
        assert mapped_blobs(place) == {}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("metadata.json", None, r"not a Core AI asset \(no metadata.json\)"),
        ("metadata.json", b"{", "metadata.json is not JSON"),
        ("metadata.json", b"[]", "does not state assetVersion"),
        ("main.mlirb", None, r"not a Core AI asset \(no main.mlirb\)"),
        ("main.mlirb", b"PK\x03\x04 something else", "main.mlirb is not MLIR bytecode"),
        ("main.mlirb", b"ML\xefR", "its SHA-256 does not match main.hash"),
        ("main.hash", None, "main.hash is missing or has the wrong size"),
    ],
)
def test_damaged_folders(tmp_path: Path, name: str, content: bytes | None, reason: str) -> None:
    asset = _asset(tmp_path)
    (asset / name).unlink()
    if content is not None:
        (asset / name).write_bytes(content)
    with pytest.raises(LoadError, match=rf"^model.aimodel: .*{reason}"):
        af.load(asset)


def test_one_changed_byte_is_found(tmp_path: Path) -> None:
    asset = _asset(tmp_path)
    program = bytearray((asset / "main.mlirb").read_bytes())
    program[len(program) // 2] ^= 1
    (asset / "main.mlirb").write_bytes(program)
    with pytest.raises(LoadError, match=r"main\.mlirb is damaged"):
        af.load(asset)


def test_a_program_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    asset = _asset(tmp_path)
    (asset / "main.mlirb").rename(tmp_path / "elsewhere")
    (asset / "main.mlirb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LoadError, match="is a link out of the folder"):
        af.load(asset)


def test_a_file_is_no_asset(tmp_path: Path) -> None:
    (tmp_path / "x.aimodel").write_bytes(b"")
    with pytest.raises(LoadError, match="not a Core AI asset; an asset is a folder"):
        af.load(tmp_path / "x.aimodel")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset = _asset(tmp_path)
    for name in [each for each in sys.modules if each == "coreai" or each.startswith("coreai.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LoadError, match=r"pip install 'aneforge-compiler\[coreai\]'"):
        af.load(asset)


def test_a_program_of_something_else(tmp_path: Path) -> None:
    """A truncated program with a hash that fits: the package itself refuses it."""
    asset = _asset(tmp_path)
    _sealed(asset, (asset / "main.mlirb").read_bytes()[:40])
    with pytest.raises(LoadError, match="cannot be read"):
        af.load(asset)


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    """Nothing of the package is imported before the reader asks for it, and it prints nothing of its own."""
    code = "import sys, aneforge as af; print(af.load(sys.argv[1]).outputs[0].name, 'torch' in sys.modules)"
    command = [sys.executable, "-W", "error", "-c", code, str(_asset(tmp_path))]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("y0 False\n", "")


def test_a_package_that_crashes_takes_nobody_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_TRIAL", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(LoadError, match=r"coreai-core crashed on main.mlirb \(signal 9\)"):
        af.load(_asset(tmp_path))
