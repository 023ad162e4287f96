"""One small network through every format: one verdict, one simulated result."""

from __future__ import annotations

import plistlib
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import aneforge as af

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(11)
SHAPE = (1, 4, 8, 8)
W1 = (RNG.standard_normal((8, 4, 3, 3)) * 0.3).astype(np.float16)
W2 = (RNG.standard_normal((6, 8, 1, 1)) * 0.3).astype(np.float16)


def by_hand(folder):
    """3 x 3 convolution, relu, 2 x 2 maximum, 1 x 1 convolution, softmax over the channels."""
    x = af.input(SHAPE, name="x")
    y = af.conv(x, W1, pad=1).relu().max_pool(2, stride=2)
    return af.Graph([af.conv(y, W2).softmax(1).named("y")])


def archive(folder):
    by_hand(folder).save(folder / "net.af")
    return folder / "net.af"


def onnx_file(folder):
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r"], "relu"),
        node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "w2"], ["c2"], "conv2"),
        node("Softmax", ["c2"], ["y"], "softmax", axis=1),
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in (("w1", W1), ("w2", W2))]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT16, SHAPE)]
    graph = helper.make_graph(nodes, "net", ports, [onnx.ValueInfoProto(name="y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, str(folder / "net.onnx"))
    return folder / "net.onnx"


def package(folder):
    af.export_coreml(by_hand(folder), folder / "net.mlpackage")
    return folder / "net.mlpackage"


def neural_network(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from coremltools.models import datatypes
        from coremltools.models.neural_network import NeuralNetworkBuilder

        ports = [("x", datatypes.Array(*SHAPE))], [("y", None)]
        made = NeuralNetworkBuilder(*ports, disable_rank5_shape_mapping=True)
        settings = {"stride_height": 1, "stride_width": 1, "groups": 1, "b": None, "has_bias": False}
        made.add_convolution(
            "conv1", 4, 8, 3, 3, border_mode="same", W=W1.astype(np.float32).transpose(2, 3, 1, 0),
            input_name="x", output_name="c1", **settings,
        )  # fmt: skip
        made.add_activation("relu", "RELU", "c1", "r")
        made.add_pooling("pool", 2, 2, 2, 2, "MAX", "VALID", "r", "p")
        made.add_convolution(
            "conv2", 8, 6, 1, 1, border_mode="valid", W=W2.astype(np.float32).transpose(2, 3, 1, 0),
            input_name="p", output_name="c2", **settings,
        )  # fmt: skip
        made.add_softmax_nd("softmax", "c2", "y", axis=1)
    (folder / "net.mlmodel").write_bytes(made.spec.SerializeToString())
    return folder / "net.mlmodel"


def mil_text(folder):
    def tensor(array):
        numbers = ", ".join(repr(float(each)) for each in array.reshape(-1))
        return f"tensor<fp16, {list(array.shape)}>([{numbers}])"

    text = f"""program(1.0)
{{
    func main<ios16>(tensor<fp16, [1, 4, 8, 8]> x) {{
        tensor<fp16, [8, 4, 3, 3]> w1 = const()[name = string("w1"), val = {tensor(W1)}];
        tensor<fp16, [6, 8, 1, 1]> w2 = const()[name = string("w2"), val = {tensor(W2)}];
        tensor<int32, [2]> one = const()[name = string("one"), val = tensor<int32, [2]>([1, 1])];
        tensor<int32, [2]> two = const()[name = string("two"), val = tensor<int32, [2]>([2, 2])];
        tensor<int32, [4]> around = const()[name = string("around"), val = tensor<int32, [4]>([1, 1, 1, 1])];
        tensor<int32, [4]> none = const()[name = string("none"), val = tensor<int32, [4]>([0, 0, 0, 0])];
        string custom = const()[name = string("custom"), val = string("custom")];
        string valid = const()[name = string("valid"), val = string("valid")];
        int32 groups = const()[name = string("groups"), val = int32(1)];
        int32 axis = const()[name = string("axis"), val = int32(1)];
        tensor<fp16, [1, 8, 8, 8]> c1 = conv(x = x, weight = w1, strides = one, pad_type = custom, pad = around,
            dilations = one, groups = groups)[name = string("conv1")];
        tensor<fp16, [1, 8, 8, 8]> r = relu(x = c1)[name = string("relu")];
        tensor<fp16, [1, 8, 4, 4]> p = max_pool(x = r, kernel_sizes = two, strides = two, pad_type = valid)[name =
            string("pool")];
        tensor<fp16, [1, 6, 4, 4]> c2 = conv(x = p, weight = w2, strides = one, pad_type = valid, pad = none,
            dilations = one, groups = groups)[name = string("conv2")];
        tensor<fp16, [1, 6, 4, 4]> y = softmax(x = c2, axis = axis)[name = string("softmax")];
    }} -> (y);
}}
"""
    (folder / "net.mil").write_text(text)
    return folder / "net.mil"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 8, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(8, 6, 1, bias=False)
        self.conv1.weight.data = torch.from_numpy(W1.astype(np.float32))
        self.conv2.weight.data = torch.from_numpy(W2.astype(np.float32))

    def forward(self, x):
        y = nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        return self.conv2(y).softmax(1)


def exported_program(folder):
    program = torch.export.export(Net().eval(), (torch.zeros(SHAPE),))
    torch.export.save(program, folder / "net.pt2")
    return folder / "net.pt2"


def netplist(folder):
    (folder / "w.bin").write_bytes(W1.tobytes() + W2.tobytes())
    conv = {"Type": "Conv", "KernelIndex": 0, "Step": [1, 1]}
    pads = {"PadLeft": 1, "PadRight": 1, "PadTop": 1, "PadBot": 1}

    def unit(kind, bottom, params, **keys):
        return {"Type": kind, "Bottom": bottom, "Params": params, "OutputType": "Float16", **keys}

    first = {**conv, **pads, "KernelWidth": 3, "KernelHeight": 3, "KernelOffset": 0}
    second = {**conv, "KernelWidth": 1, "KernelHeight": 1, "KernelOffset": W1.nbytes}
    window = {"Type": "Max", "KernelWidth": 2, "KernelHeight": 2, "Step": [2, 2, 1]}
    units = {
        "conv1": unit("Conv", "x", first, OutputChannels=8),
        "relu": unit("Neuron", "conv1", {"Type": "ReLU"}),
        "pool": unit("Pool", "relu", window),
        "conv2": unit("Conv", "pool", second, OutputChannels=6),
        "softmax": unit("Softmax", "conv2", {"Dimension": "Channel"}),
    }
    port = {"InputName": "x", "BatchSize": 1, "InputChannels": 4, "InputHeight": 8, "InputWidth": 8}
    procedure = {
        "InputList": [port],
        "OperationList": [{"NetworkName": "net"}],
        "OutputList": [{"OutputName": "y"}],
    }
    network = {"Units": list(units), "Weights": ["w.bin"], **units, "y": {"Bottom": "softmax"}}
    document = {"Networks": ["net"], "ProcedureList": [procedure], "net": network}
    (folder / "net.plist").write_bytes(plistlib.dumps(document))
    return folder / "net.plist"


def core_ai(folder):
    from coreai_kit import A, build, u32

    def body(x):
        around = A.pad(x, u32(0, 0, 0, 0, 1, 1, 1, 1), np.float16(0))
        first = A.relu(A.conv2d(around, W1, u32(1, 1), u32(1, 1), np.uint32(1)))
        kind = A.TensorSpec((1, 8, 4, 4), A.float16)
        pooled = A.maxpool2d(kind, first, u32(2, 2), u32(2, 2), u32(1, 1), np.bool_(False))
        return A.softmax(A.conv2d(pooled, W2, u32(1, 1), u32(1, 1), np.uint32(1)), np.int32(1))

    return build(folder, body, {"x": (SHAPE, "float16")}).path


def python_file(folder):
    source = [
        "import numpy as np",
        "import aneforge as af",
        f"w1 = np.array({W1.astype(float).tolist()})",
        f"w2 = np.array({W2.astype(float).tolist()})",
        f"x = af.input({SHAPE}, name='x')",
        "out = af.conv(af.conv(x, w1, pad=1).relu().max_pool(2, stride=2), w2).softmax(1).named('y')",
    ]
    (folder / "net.py").write_text("\n".join(source))
    return folder / "net.py"


FORMATS = {
    each.__name__: each
    for each in (
        archive,
        onnx_file,
        package,
        neural_network,
        mil_text,
        exported_program,
        netplist,
        core_ai,
        python_file,
    )
}


@pytest.mark.parametrize("name", FORMATS)
def test_one_verdict_and_one_result(name, tmp_path):
    from aneforge.cli.options import load_model

    wanted, found = by_hand(tmp_path), load_model(str(FORMATS[name](tmp_path)))
    assert [each.op for each in found.operations] == [each.op for each in wanted.operations]
    verdicts = [af.preflight_all(each) for each in (wanted, found)]
    assert {chip: result.counts for chip, result in verdicts[0].items()} == {
        chip: result.counts for chip, result in verdicts[1].items()
    }
    data = RNG.standard_normal(SHAPE).astype(np.float16)
    for chip in ("m1", "m4", "m5"):
        one, two = (af.compile(each, target=chip)(data) for each in (wanted, found))
        np.testing.assert_array_equal(one, two)


def test_a_module_gives_the_same(tmp_path):
    found = af.from_torch(Net().eval(), (torch.zeros(SHAPE),))
    data = RNG.standard_normal(SHAPE).astype(np.float16)
    one, two = (af.compile(each, target="m1")(data) for each in (by_hand(tmp_path), found))
    np.testing.assert_array_equal(one, two)
    with torch.no_grad():
        want = Net()(torch.from_numpy(data.astype(np.float32))).numpy()
    np.testing.assert_allclose(two, want, atol=2e-3)
