# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Neural networks of .mlmodel files: layers against plain NumPy, under both rules for shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import coreml_cases_layers_nd  # noqa: F401 - fills the list of cases, as the module that it imports does
import numpy as np
import pytest
from coreml_cases_layers import B6, add_act
from coreml_network_kit import CASES, Case, network, numbers, positive

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats import coreml
from aneforge.formats.coreml.network import CONTROL, LAYERS, REFUSED


@pytest.mark.parametrize("each", CASES)
def test_a_layer_means_what_its_documentation_says(each: Case, tmp_path: Path) -> None:
    inputs = {name: feed.shape for name, feed in zip(("x", "z", "w"), each.feeds, strict=False)}
    outputs: list[Any] = [("y", None)] if each.outputs == 1 else [(f"y{i}", None) for i in range(each.outputs)]
    graph = coreml.read(network(tmp_path, each.build, inputs, outputs, each.exact))
    found = af.evaluate(graph, dict(zip(("x", "z", "w"), each.feeds, strict=False)))
    made = each.expected(*each.feeds)
    wanted = list(made) if isinstance(made, (list, tuple)) else [made]
    assert len(found) == len(wanted)
    for have, want in zip(found, wanted, strict=True):
        assert have.shape == (np.shape(want) or (1,))
        np.testing.assert_allclose(have, np.reshape(want, have.shape), rtol=2e-3, atol=2e-3)


def test_every_layer_of_the_specification_is_ruled_or_refused() -> None:
    from aneforge.formats.coreml.spec import message_class

    layers = message_class("NeuralNetworkLayer").DESCRIPTOR.oneofs_by_name["layer"].fields
    names = {each.name for each in layers}
    assert names == set(LAYERS) | set(REFUSED) | set(CONTROL)
    assert not set(LAYERS) & set(REFUSED)


# The rest of a network.


def test_an_image_is_scaled_and_shifted_by_colour(tmp_path: Path) -> None:
    def build(b: Any) -> None:
        add_act(b, "RELU")
        b.set_pre_processing_parameters(
            image_input_names=["x"], is_bgr=True, red_bias=-1, green_bias=-2, blue_bias=-3, image_scale=0.5
        )

    place = network(tmp_path, build, {"x": (3, 4, 5)}, (3, 4, 5), False)
    graph = coreml.read(place)
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 4, 5))
    (found,) = af.evaluate(graph, {"x": image})
    np.testing.assert_allclose(found, np.maximum(image[0] * 0.5 + np.array([-3, -2, -1])[:, None, None], 0))
    assert graph.inputs[0].attrs["max_abs"] == 255.0


@pytest.mark.parametrize("bits", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("form", ["linear", "lut"])
def test_quantised_weights_stay_as_they_are_stored(bits: int, form: str, tmp_path: Path) -> None:
    from coremltools.models.neural_network.quantization_utils import _convert_array_to_nbit_quantized_bytes

    codes = np.random.default_rng(0).integers(0, 2**bits, (5, 16)).astype(np.uint8)
    scale, bias = positive(5), numbers(5, seed=3)
    table = numbers(2**bits, seed=4)
    data = codes.tobytes() if bits == 8 else _convert_array_to_nbit_quantized_bytes(codes.reshape(-1), bits).tobytes()
    told: dict[str, Any] = {"is_quantized_weight": True, "quantization_type": form, "nbits": bits}
    told |= {"quant_scale": scale, "quant_bias": bias} if form == "linear" else {"quant_lut": table}
    place = network(
        tmp_path,
        lambda b: b.add_inner_product("fc", data, None, 16, 5, False, "x", "y", **told),
        {"x": (16,)},
        (5,),
        False,
    )
    graph = coreml.read(place)
    wanted = codes * scale[:, None] + bias[:, None] if form == "linear" else table[codes]
    x = numbers(16, seed=8)
    np.testing.assert_allclose(af.evaluate(graph, [x])[0], wanted @ x, rtol=5e-3, atol=5e-2)
    (weight,) = graph.weights.values()
    linear = "int8" if bits == 8 else f"int{bits}-affine"
    assert weight.encoding == ("fp16" if bits == 5 else linear if form == "linear" else f"lut{bits}")


def test_a_small_network_keeps_its_names_and_runs_everywhere(tmp_path: Path) -> None:
    def build(b: Any) -> None:
        b.add_convolution(
            "stem", 3, 6, 3, 3, 1, 1, "same", 1, numbers(3, 3, 3, 6), B6, True, input_name="x", output_name="a"
        )
        b.add_activation("bend", "RELU", "a", "b")
        b.add_pooling("shrink", 2, 2, 2, 2, "MAX", "VALID", "b", "c")
        b.add_flatten("line", 0, "c", "d")
        b.add_inner_product("head", numbers(4, 96) / 16, None, 96, 4, False, "d", "y")

    graph = coreml.read(network(tmp_path, build, {"x": (3, 8, 8)}, (4,), False))
    names = [each.name for each in graph]
    assert [name for name in ("stem", "bend", "shrink") if name in names] == ["stem", "bend", "shrink"]
    assert [each.op for each in graph.operations].count("reshape") <= 4
    model = af.compile(graph, target="m1")
    x = numbers(3, 8, 8)
    np.testing.assert_allclose(model(x), af.evaluate(graph, [x])[0], rtol=2e-2, atol=2e-2)


def test_other_kinds_of_models_are_one_clear_refusal(tmp_path: Path) -> None:
    from coremltools.proto import Model_pb2

    model = Model_pb2.Model(specificationVersion=4)
    model.treeEnsembleRegressor.SetInParent()
    place = tmp_path / "tree.mlmodel"
    place.write_bytes(model.SerializeToString())
    with pytest.raises(
        LoadError,
        match=r"tree.mlmodel: a treeEnsembleRegressor is not supported; use an ML program or a neural network",
    ):
        coreml.read(place)
    model.pipeline.SetInParent()
    place.write_bytes(model.SerializeToString())
    with pytest.raises(LoadError, match="the pipeline has no stages; save the model again"):
        coreml.read(place)


def test_a_layer_without_a_rule_names_itself(tmp_path: Path) -> None:
    def build(b: Any) -> None:
        layer = b.spec.neuralNetwork.layers.add()
        layer.name, layer.custom.className = "mine", "MyLayer"
        layer.input.append("x")
        layer.output.append("y")

    with pytest.raises(LoadError, match=r"model.mlmodel: mine \(custom\): custom layers are not supported"):
        coreml.read(network(tmp_path, build, {"x": (4,)}, (4,), False))


def test_loops_and_branches_that_are_known_are_written_out(tmp_path: Path) -> None:
    def build(b: Any, rounds: float = 3.0) -> None:
        b.add_load_constant_nd("zero", "i", np.float32([0]), (1,))
        b.add_copy("start", "x", "y")
        loop = b.add_loop("loop", condition="more", max_iterations=0).loop
        test = type(b)(nn_spec=loop.conditionNetwork, disable_rank5_shape_mapping=True)
        test.add_less_than("less", ["i"], "more", alpha=rounds)
        body = type(b)(nn_spec=loop.bodyNetwork, disable_rank5_shape_mapping=True)
        body.add_activation("twice", "LINEAR", "y", "double", [2.0, 0.0])
        body.add_copy("kept", "double", "y")
        body.add_load_constant_nd("one", "step", np.float32([1]), (1,))
        body.add_add_broadcastable("count", ["i", "step"], "next")
        body.add_copy("counted", "next", "i")

    x = numbers(2, 3)
    graph = coreml.read(network(tmp_path, build, {"x": (2, 3)}, (2, 3), True))
    np.testing.assert_allclose(af.evaluate(graph, [x])[0], x * 8)
    with pytest.raises(LoadError, match=r"loop \(loop\): this loop: 4,097 is over the budget rounds"):
        coreml.read(network(tmp_path, lambda b: build(b, 1e9), {"x": (2, 3)}, (2, 3), True))
