# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
"""What real exporters leave in files: sizes joined from single numbers, constants that are NaN, sums of many axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from coreml_kit import IOS18, ct, mb, numbers, saved, types
from coremltools.converters.mil.mil import get_new_symbol
from onnx import TensorProto, helper, numpy_helper

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats import coreml, onnx_graph
from aneforge.formats.ops.known import KNOWN
from aneforge.study.checking import check


def test_single_numbers_join_to_a_line() -> None:
    joined = KNOWN["concat"]([np.array(2), np.array(3), np.array([4])], 0, False)
    assert joined.tolist() == [2, 3, 4]


def test_powers_of_whole_numbers_are_whole() -> None:
    power = KNOWN["pow"](np.array([3, 2]), np.array([2, 5]))
    assert power.dtype.kind == "i"
    assert power.tolist() == [9, 32]
    assert KNOWN["pow"](np.array([2]), np.array([-1])).tolist() == [0.5]


def test_a_stateful_flexible_decoder_is_read(tmp_path: Path) -> None:
    """Keys are written to a state up to a length that comes from the shape of a mask; ends are joined from numbers."""
    keys, width = 8, 4

    @mb.program(
        input_specs=[
            mb.TensorSpec((1, get_new_symbol("rows"), width), dtype=types.fp16),
            mb.StateTensorSpec((1, keys, width), dtype=types.fp16),
        ],
        opset_version=IOS18,
    )
    def program(x, cache):
        sizes = mb.shape(x=x)
        count = mb.gather(x=sizes, indices=1, axis=0)
        end = mb.concat(values=(np.int32(1), count, np.int32(width)), axis=0)
        kept = mb.slice_update(x=mb.read_state(input=cache), update=x, begin=[0, 0, 0], end=end)
        mb.coreml_update_state(state=cache, value=kept)
        return mb.relu(x=kept, name="y")

    place = tmp_path / "decoder.mlpackage"
    saved(program, place, IOS18, compute_precision=ct.precision.FLOAT16)
    graph = coreml.read(place, dims={"x[1]": 2})
    assert list(graph.states) == ["cache"]
    assert graph.outputs[0].shape == (1, keys, width)


def model(nodes: list[onnx.NodeProto], shape: list[int], **known: np.ndarray) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", shape), ("y", None))
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in known.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("size", [4, 2000])
def test_a_constant_that_is_nan_ends_no_load(size: int) -> None:
    zero = np.zeros((1, size), np.float32)
    divide = helper.make_node("Div", ["z", "z"], ["nan"])
    unused = onnx_graph(model([divide, helper.make_node("Relu", ["x"], ["y"])], [1, size], z=zero))
    assert [node.op for node in unused.operations] == ["relu"]
    where = [helper.make_node("Greater", ["x", "z"], ["c"]), helper.make_node("Where", ["c", "x", "nan"], ["y"])]
    chosen = onnx_graph(model([divide, *where], [1, size], z=zero))
    result = af.evaluate(chosen, [np.linspace(-1, 1, size)[None]])[0]
    assert np.isnan(result[0, 0])
    assert result[0, -1] == 1


def test_an_output_that_is_nan_is_refused_by_name() -> None:
    with pytest.raises(LoadError, match=r"output 'y': .*holds NaN"):
        onnx_graph(model([helper.make_node("Div", ["z", "z"], ["y"])], [1, 4], z=np.zeros((1, 4), np.float32)))


@pytest.mark.parametrize("axis", range(5))
def test_running_sums_of_five_axes_run_on_every_chip(axis: int) -> None:
    x = af.input((2, 3, 2, 4, 5), name="x")
    graph = af.Graph([x.cumsum(axis)])
    assert check(graph, "m1,m4").ok
    feed = numbers(2, 3, 2, 4, 5)
    np.testing.assert_allclose(af.compile(graph, target="m1", route="conversion")(feed), np.cumsum(feed, axis))


def test_a_tensor_of_too_many_axes_is_one_line() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    with pytest.raises(LoadError, match="6 axes, and the engine has 5"):
        onnx_graph(model(nodes, [1, 2, 1, 2, 2, 2]))
