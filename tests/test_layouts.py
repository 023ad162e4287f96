"""Layouts: both spellings of rows give one program, a transformer keeps no transposes, and no number changes.

``layout_bits.json`` holds fingerprints of outputs as commit 689228e simulated them, which had no layouts yet. To
compute them again, run this file as a script in a checkout of that commit with this folder's ``random_graphs.py``.
"""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from random_graphs import attention, random_graph, rewritten_graph, token_graph

import aneforge as af
from aneforge.compiler.refusal import CompileError
from aneforge.cost.program import work_of_program

HERE = Path(__file__).resolve().parent
KEPT = HERE / "layout_bits.json"
EXAMPLES = ("vit", "unet_block", "small", "resnet")
SEEDS = range(6)


def graphs():
    """Graphs by name, built when they are asked for."""
    for name in EXAMPLES:
        yield name, lambda name=name: runpy.run_path(str(HERE.parent / "examples" / f"{name}.py"))["out"]
    for seed in SEEDS:
        yield f"random {seed}", lambda seed=seed: random_graph(seed)[0]
        yield f"rewritten {seed}", lambda seed=seed: rewritten_graph(seed)[0]
    for seed in range(2 * len(SEEDS)):
        for lead in ((), (1,), (2,)):
            yield f"tokens {lead} {seed}", lambda seed=seed, lead=lead: token_graph(seed, lead)[0]


def fingerprint(graph, chip):
    try:
        model = af.compile(graph, target=chip)
    except CompileError as refusal:
        return f"refused by {refusal.refused_by}"
    rng, feeds = np.random.default_rng(7), {}
    for port in model.program.inputs:
        numbers = rng.normal(0, 1, port.user_shape)
        image = port.dtype == "ui8"
        feeds[port.name] = (np.abs(numbers) * 60).astype(np.uint8) if image else numbers.astype(np.float16)
    outputs = model.run(feeds).outputs.values()
    return hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in outputs)).hexdigest()[:16]


GRAPHS = dict(graphs())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GRAPHS)
def test_no_bit_changes_with_the_layout(name):
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    for chip in ("m1", "m5"):
        assert fingerprint(GRAPHS[name](), chip) == kept[f"{name} {chip}"], chip


# What a program looks like.


def drawn(program):
    """Layers with their slots and shapes, and the memory map, without names of the user's nodes."""
    layers = [
        (layer.engine, layer.task_group, layer.allocation, [(op.kind, op.slot, op.shape) for op in layer.ops])
        for layer in program.schedule.graph.layers
    ]
    return layers, [buffer[1:-1] for buffer in program.buffers]


def alone(program, kind="transpose"):
    """The layers that an op has to itself."""
    return [layer for layer in program.schedule.graph.layers if layer.primary.kind == kind]


def encoder(lead, length=32, width=64, blocks=2, hidden=4):
    rng = np.random.default_rng(5)
    y = af.input((*lead, length, width), name="x")
    for _ in range(blocks):
        y = y + attention(rng, y.layer_norm(np.ones(width), np.zeros(width)), 4, masked=True)
        inner = y.layer_norm(np.ones(width), np.zeros(width)).linear(0.1 * rng.normal(size=(hidden * width, width)))
        y = y + inner.gelu().linear(0.1 * rng.normal(size=(width, hidden * width)), np.ones(width))
    return y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chip", ["m1", "m2", "m5"])
def test_both_spellings_of_rows_are_one_program(chip):
    """Table 22.1: rank is a matter of the front end; [1, S, D] and [S, D] are the same tensor to the engine."""
    three, two = (af.compile(encoder(lead), target=chip).program for lead in ((1,), ()))
    assert drawn(three) == drawn(two)
    assert af.estimate(encoder((1,)), target=chip) == af.estimate(encoder(()), target=chip)
    assert work_of_program(three) == work_of_program(two)


@pytest.mark.filterwarnings("ignore")
def test_an_mlp_of_three_axes_stays_on_chip():
    """12.1 MB in memory and three task groups before: the rows of 197 tokens held one number each."""
    weights = np.zeros((768, 192)), np.zeros((192, 768))
    out = af.input((1, 197, 192)).linear(weights[0], np.zeros(768)).gelu().linear(weights[1], np.zeros(192))
    program = af.compile(out, target="m1").program
    assert len(program.task_groups) == 1
    assert not [buffer for buffer in program.buffers if buffer.space == "dram"]
    layers = [[op.kind for op in layer.ops] for layer in program.schedule.graph.layers]
    assert layers == [["transpose"], ["convolution", "gelu"], ["convolution", "transpose"]]  # the first is at the port


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lead", [(), (1,), (2,)])
def test_a_block_keeps_its_transposes_in_slots(lead):
    """Chapter 22: transposes fold into the adjacent operation; one is left where the input enters."""
    program = af.compile(encoder(lead), target="m5").program
    (entering,) = alone(program)
    assert entering.primary.operands[0].kind == "live_in"
    kinds = [layer.primary.kind for layer in program.schedule.graph.layers if layer.engine != "view"]
    block = ["layer_norm", *["convolution"] * 3, "matmul", "add", "softmax", "matmul", "convolution", "add"]
    block += ["layer_norm", "convolution", "convolution", "add"]
    assert sorted(kinds) == sorted(["transpose", *block, *block])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chip", ["m1", "m2", "m5"])
def test_vit_keeps_no_transposes(chip):
    program = af.compile(GRAPHS["vit"](), target=chip).program
    assert not alone(program)
    assert {op.slot for layer in program.schedule.graph.layers for op in layer.ops if op.kind == "transpose"} == {
        "transpose"
    }


@pytest.mark.filterwarnings("ignore")
def test_a_weight_above_the_working_set_reads_turned_rows_by_its_flag():
    """Listing 22.1: the contraction is parametric. Products of 2 MB and more stay products (C25)."""
    rng = np.random.default_rng(0)
    y = af.input((16, 768)).linear(0.02 * rng.normal(size=(768, 768))).layer_norm(np.ones(768), np.zeros(768))
    y = y + y.linear(0.02 * rng.normal(size=(3072, 768)), np.zeros(3072)).gelu().linear(
        0.02 * rng.normal(size=(768, 3072))
    )
    program = af.compile(
        y.layer_norm(np.ones(768), np.zeros(768)).linear(0.02 * rng.normal(size=(768, 768))), target="m1"
    ).program
    assert [layer.primary.operands[0].kind for layer in alone(program)] == ["live_in"]
    (wide,) = [layer for layer in alone(program, "matmul") if layer.result.shape[4] == 3072]
    assert {"transpose_lhs", "transpose_rhs"} <= set(wide.primary.attrs)
    assert [op.kind for op in wide.ops] == ["matmul", "gelu"]


@pytest.mark.filterwarnings("ignore")
def test_a_slice_along_the_width_stays_there_where_it_clamps():
    """N18, N20: only the width clamps, so a user's last axis must not move to the channels on an M1."""
    rng = np.random.default_rng(3)
    x = af.input((16, 48), name="x")
    y = x.linear(rng.normal(size=(48, 48)))[:, 8:].linear(rng.normal(size=(48, 40)))
    places = {
        chip: [
            op.attrs["dimension"] for op in af.compile(y, target=chip).program.module.ops if op.kind == "input_view"
        ]
        for chip in ("m1", "m5")
    }
    assert places == {"m1": [4], "m5": [2]}


# An encoder from a file, as PyTorch's exporters write it.


class Exported:
    """BERT with random weights: products with a bias behind them, norms and gelu spelled out; tokens on [1, S, D] or,
    with ``lead=()``, on [S, D]."""

    def __init__(self, lead, length=16, width=64, heads=4, blocks=2):
        self.rng, self.nodes, self.weights = np.random.default_rng(11), [], []
        self.lead, self.length, self.width, self.heads = lead, length, width, heads
        x = "embeddings"
        for block in range(blocks):
            x = self.block(x, f"/layer.{block}")
        shape = [*lead, length, width]
        info = onnx.helper.make_tensor_value_info
        ports = [info("embeddings", onnx.TensorProto.FLOAT16, shape)]
        result = [info(x, onnx.TensorProto.FLOAT16, shape)]
        graph = onnx.helper.make_graph(self.nodes, "bert", ports, result, self.weights)
        self.model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)

    def stored(self, name, values, kind=np.float16):
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def node(self, kind, inputs, name, **settings):
        self.nodes.append(onnx.helper.make_node(kind, inputs, [f"{name}_output_0"], name, **settings))
        return f"{name}_output_0"

    def product(self, x, name, rows, columns):
        weight = self.stored(f"{name}.weight", 0.1 * self.rng.normal(size=(rows, columns)))
        bias = self.stored(f"{name}.bias", 0.1 * self.rng.normal(size=columns))
        return self.node("Add", [bias, self.node("MatMul", [x, weight], f"{name}/MatMul")], f"{name}/Add")

    def norm(self, x, name):
        """A layer norm as opset 13 has it."""
        mean = self.node("ReduceMean", [x], f"{name}/ReduceMean", axes=[-1])
        centred = self.node("Sub", [x, mean], f"{name}/Sub")
        square = self.node("Pow", [centred, self.stored(f"{name}.two", 2.0)], f"{name}/Pow")
        spread = self.node("ReduceMean", [square], f"{name}/ReduceMean_1", axes=[-1])
        shifted = self.node("Add", [spread, self.stored(f"{name}.eps", 1e-5)], f"{name}/Add")
        white = self.node("Div", [centred, self.node("Sqrt", [shifted], f"{name}/Sqrt")], f"{name}/Div")
        gain = self.stored(f"{name}.weight", 1 + 0.1 * self.rng.normal(size=self.width))
        offset = self.stored(f"{name}.bias", 0.1 * self.rng.normal(size=self.width))
        return self.node("Add", [self.node("Mul", [white, gain], f"{name}/Mul"), offset], f"{name}/Add_1")

    def gelu(self, x, name):
        tail = self.node(
            "Erf", [self.node("Div", [x, self.stored(f"{name}.root", 2**0.5)], f"{name}/Div")], f"{name}/Erf"
        )
        share = self.node("Add", [tail, self.stored(f"{name}.one", 1.0)], f"{name}/Add")
        both = self.node("Mul", [x, share], f"{name}/Mul")
        return self.node("Mul", [both, self.stored(f"{name}.half", 0.5)], f"{name}/Mul_1")

    def block(self, x, name):
        front, at = list(range(len(self.lead))), len(self.lead)
        sizes = self.stored(f"{name}.heads", [*self.lead, self.length, self.heads, -1], np.int64)
        parts = {}
        for part in ("query", "key", "value"):
            split = self.node(
                "Reshape", [self.product(x, f"{name}/{part}", self.width, self.width), sizes], f"{name}/{part}/Reshape"
            )
            order = [at + 1, at + 2, at] if part == "key" else [at + 1, at, at + 2]
            parts[part] = self.node("Transpose", [split], f"{name}/{part}/Transpose", perm=[*front, *order])
        scores = self.node("MatMul", [parts["query"], parts["key"]], f"{name}/MatMul")
        scores = self.node(
            "Div", [scores, self.stored(f"{name}.root", (self.width / self.heads) ** 0.5)], f"{name}/Div"
        )
        shares = self.node("Softmax", [scores], f"{name}/Softmax", axis=-1)
        mixed = self.node("MatMul", [shares, parts["value"]], f"{name}/MatMul_1")
        turned = self.node("Transpose", [mixed], f"{name}/Transpose", perm=[*front, at + 1, at, at + 2])
        flat = self.stored(f"{name}.flat", [*self.lead, self.length, self.width], np.int64)
        joined = self.node("Reshape", [turned, flat], f"{name}/Reshape")
        x = self.norm(
            self.node("Add", [self.product(joined, f"{name}/out", self.width, self.width), x], f"{name}/Add"),
            f"{name}/n1",
        )
        wide = self.gelu(self.product(x, f"{name}/up", self.width, 4 * self.width), f"{name}/gelu")
        down = self.product(wide, f"{name}/down", 4 * self.width, self.width)
        return self.norm(self.node("Add", [down, x], f"{name}/Add_1"), f"{name}/n2")


BLOCK = [
    *[["convolution", "transpose"]] * 3,
    ["matmul"],  # a root of four is folded into the queries
    ["softmax"],
    ["matmul", "transpose"],
    ["convolution"],
    ["add"],
    ["layer_norm"],
    ["convolution", "gelu"],
    ["convolution"],
    ["add"],
    ["layer_norm"],
]
"""The layers of a BERT block; a transpose in it is in the slot of its layer."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chip", ["m1", "m5"])
def test_an_exported_bert_has_the_same_few_layers_by_either_spelling(tmp_path, chip):
    programs = []
    for lead in ((1,), ()):
        file = tmp_path / f"bert{len(lead)}.onnx"
        onnx.save(Exported(lead).model, str(file))
        programs.append(af.compile(af.load(str(file)), target=chip).program)
    assert drawn(programs[0]) == drawn(programs[1])
    ran = [layer for layer in programs[0].schedule.graph.layers if layer.engine != "view"]
    kinds = [[op.kind for op in layer.ops] for layer in ran]
    edges = [["transpose"]] * (len(kinds) - 2 * len(BLOCK))  # at the input and at the output
    assert sorted(kinds) == sorted([*BLOCK, *BLOCK, *edges])
    assert len(edges) <= 2


# The price.


@pytest.mark.filterwarnings("ignore")
def test_rows_of_one_number_cost_what_they_take():
    """The same multiply-adds and numbers, with tokens down the height and along the width."""
    kernel = np.zeros((512, 256, 1, 1))

    def convolved(*shape):
        return af.conv(af.conv(af.input(shape), kernel).relu(), np.zeros((8, 512, 1, 1)))

    tall, wide = convolved(1, 256, 4096, 1), convolved(1, 256, 1, 4096)
    sizes = [work_of_program(af.compile(out, target="m1").program)[0].bytes_out for out in (tall, wide)]
    assert sizes[1] == 2 * 512 * 4096
    assert sizes[0] == 32 * sizes[1]  # a line of 64 bytes for two
    assert af.estimate(tall, target="m1") > 2 * af.estimate(wide, target="m1")


def test_a_value_that_leaves_a_region_turned_and_comes_back_stays_turned():
    """The transpose between two ops of one region became an op of the region, and was taken for a value in its
    layout."""
    x = af.input((1, 4, 3, 3))
    y = af.conv(x, np.random.default_rng(0).normal(0, 0.5, (4, 4, 1, 1))).relu()
    out = af.concat([y.transpose([0, 1, 3, 2]), y], axis=1).relu()
    out = af.conv(out, np.random.default_rng(1).normal(0, 0.5, (4, 8, 3, 3)), pad=1)
    for chip in ("m1", "m5"):
        af.compile(out, target=chip, validate=True)  # the meaning in float64 after every pass


if __name__ == "__main__":
    found = {f"{name} {chip}": fingerprint(make(), chip) for name, make in GRAPHS.items() for chip in ("m1", "m5")}
    Path(sys.argv[1] if len(sys.argv) > 1 else KEPT).write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
