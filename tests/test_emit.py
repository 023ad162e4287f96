"""Programs to containers and back: the published words, every form, real shapes of networks, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_graphs import random_graph

import aneforge as af
from aneforge.codegen.assemble import CallerTensor, Parts, assemble
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import read_container
from aneforge.codegen.decoding import decode
from aneforge.codegen.dialect import resolved
from aneforge.codegen.emission import emit
from aneforge.codegen.record import debug_bytes, read_debug
from aneforge.codegen.tasks import Task
from aneforge.errors import AneforgeError
from aneforge.study.model import Model

rng = np.random.default_rng(21)
EXAMPLES = Path(__file__).parents[1] / "examples"


def halves(*shape, scale=0.2):
    return (scale * rng.normal(size=shape)).astype(np.float16)


def compiled(out, target="h13"):
    return af.compile(out, target=target, _check_precision=False)


def feeds_of(program):
    ports = [port for port in program.inputs if port.initial is None]
    return {
        port.name: rng.integers(0, 256, port.user_shape, np.uint8)
        if port.dtype in ("uint8", "ui8")
        else halves(*port.user_shape, scale=1)
        for port in ports
    }


def read_back(model: Model) -> tuple[Model, Any]:
    """The model of the container's bytes, and the container."""
    container = emit(model.program)
    data = container.to_bytes()
    again = read_container(data)
    assert again.to_bytes() == data
    return Model(model.graph, decode(again)), container


def assert_same_bits(model, other):
    feeds = feeds_of(model.program)
    before, after = model.run(feeds).outputs, other.run(feeds).outputs
    assert list(before) == list(after)
    for name, value in before.items():
        assert value.shape == after[name].shape
        assert value.tobytes() == after[name].tobytes(), name


def image(channels=16, size=8, name="x"):
    return af.input((1, channels, size, size), name=name)


# The published programs.

LARGE = (3, 224, 224)
ADD_SHAPES = {"h13": (64, 8, 8), "h14": LARGE, "h16": LARGE, "h17": LARGE, "h18": LARGE}
PUBLISHED = {
    **{f"{t}__binary_add_1x{'x'.join(map(str, shape))}": ("add", shape) for t, shape in ADD_SHAPES.items()},
    **{f"{target}__conv_k3_c64_n64_s8_bias0": ("conv", ()) for target in ("h13", "h14")},
    **{f"{target}__unary_sigmoid_c64": ("sigmoid", ()) for target in ("h16", "h18")},
    **{f"{target}__matmul_m8_k256_n512_ty1": ("matmul", ()) for target in ("h13", "h15", "h17")},
}


def published_graph(kind, shape):
    if kind == "add":
        return (af.input((1, *shape), name="x") + af.input((1, *shape), name="z")).named("y")
    if kind == "conv":
        return af.conv(image(64), halves(64, 64, 3, 3), pad=1).named("y")
    if kind == "sigmoid":
        return af.input((1, 64, 1, 1), name="x").sigmoid().named("y")
    return af.matmul(af.input((8, 256), name="x"), halves(256, 512)).named("product")


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_compiler_gives_the_published_words(name):
    kit = pytest.importorskip("container_kit", reason="the published examples come with the tests of the reader")
    document = kit.example(name)
    container = emit(compiled(published_graph(*PUBLISHED[name]), document["target"]).program)
    assert [task.words for task in container.tasks] == [kit.words_of(task) for task in document["tasks"]]


# Every form comes back from registers.


def squared(x):
    return x * x


def activated(x):
    return x.relu()


FORMS = {
    "add": lambda: image() + image(name="z"),
    "sub": lambda: image() - image(name="z"),
    "mul": lambda: image() * image(name="z"),
    "max": lambda: af.maximum(image(), image(name="z")),
    "min": lambda: af.minimum(image(), image(name="z")),
    "add relu": lambda: activated(image() + image(name="z")),
    "square by itself": lambda: squared(image()),
    "conv 1x1": lambda: af.conv(image(), halves(32, 16, 1, 1)),
    "conv 3x3 bias relu": lambda: af.conv(image(), halves(64, 16, 3, 3), pad=1, bias=halves(64)).relu(),
    "conv 5x3 stride": lambda: af.conv(image(), halves(24, 16, 5, 3), stride=(2, 1), pad=(2, 2, 1, 1)),
    "conv 7x7 stride 2": lambda: af.conv(image(3, 32), halves(64, 3, 7, 7), stride=2, pad=3, bias=halves(64)),
    "conv few outputs": lambda: af.conv(image(), halves(5, 16, 3, 3)),
    "conv table": lambda: af.conv(image(), halves(32, 16, 1, 1), bias=halves(32)).sigmoid(),
    "conv grouped": lambda: af.conv(image(), halves(32, 4, 3, 3), pad=1, groups=4),
    "conv depthwise": lambda: af.conv(image(), halves(16, 1, 3, 3), pad=1, groups=16, bias=halves(16)).gelu(),
    "matmul": lambda: af.matmul(af.input((8, 256), name="x"), halves(256, 512)),
    "linear bias table": lambda: af.linear(af.input((8, 64), name="x"), halves(48, 64), bias=halves(48)).tanh(),
    "relu": lambda: image().relu(),
    "tanh": lambda: image().tanh(),
    "transpose": lambda: image().transpose((0, 3, 2, 1)),
    "max pool": lambda: image().max_pool(3, 2, 1),
    "average pool": lambda: image().avg_pool(2),
    "mean": lambda: image().mean((2, 3)),
    "sum of channels": lambda: image(16, 1).sum((1,)),
    "sum that stretches": lambda: image() + af.input((1, 16, 1, 1), name="z"),
    "number": lambda: image() * 0.5,
    "number for each channel": lambda: image() + halves(1, 16, 1, 1),
    "clamp": lambda: af.minimum(image(), 0.25),
    "division": lambda: image() / image(name="z"),
    "logarithm": lambda: image().log(),
    "exponential": lambda: image().exp(),
    "absolute": lambda: image().abs(),
    "slope": lambda: image().leaky_relu(0.1),
    "linear of many rows": lambda: af.linear(af.input((200, 64), name="x"), halves(48, 64), bias=halves(48)),
    "batch of sums": lambda: af.input((2, 16, 8, 8), name="x") + af.input((2, 16, 8, 8), name="z"),
    "largest of columns": lambda: image().amax((3,)),
    "smallest": lambda: image().amin((3,)),
    "chain": lambda: (image().sigmoid() - image(name="z") * image(name="w")).relu().mean((2, 3)),
    "odd extents": lambda: af.conv(image(7, 13), halves(11, 7, 3, 3), stride=2).relu(),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_comes_back_from_the_registers(name):
    model = compiled(FORMS[name]())
    other, container = read_back(model)
    assert container.record is not None
    assert not container.record.not_expressed, str(container.record)
    assert_same_bits(model, other)


def test_layers_without_a_form_travel_as_text_and_are_named():
    x = af.input((8, 64), name="x")
    model = compiled((x + af.input((8, 64), name="z")).floor())
    other, container = read_back(model)
    assert [task.form for task in container.record.not_expressed] == ["add"]
    assert "floor" in str(container.record)
    number = container.record.not_expressed[0].task
    assert container.tasks[number].registers["PE.Cfg.OpMode"] == 0
    assert container.tasks[number].registers["Common.InDim.Win"] == 64
    assert_same_bits(model, other)


@pytest.mark.parametrize("behind", [False, True])
def test_a_large_kernel_is_several_tasks(behind):
    """A core keeps 64 KiB of a kernel: 14 outputs of 256 inputs and nine taps. The last outputs come first, and their
    task brings the source into scratch for the others."""
    y = af.conv(image(256, 14), halves(256, 256, 3, 3), pad=1, bias=halves(256)).relu()
    model = compiled(y.max_pool(2) if behind else y)  # the parts lie in scratch, or in the caller's tensor
    other, container = read_back(model)
    assert len(container.tasks) == 2 + behind
    assert [task.registers["Common.Cout.Cout"] for task in container.tasks[:2]] == [32, 224]
    assert [task.word(0x4804) & 0x43 for task in container.tasks[:2]] == [0x41, 0]
    assert_same_bits(model, other)
    with pytest.raises(ContainerError, match="where no task wrote such a tensor"):
        decode(changed(container, 1, "scratch.result.base" if behind else "result.base", 0x40))


def test_a_small_map_takes_any_kernel_in_one_task():
    model = compiled(af.conv(image(512, 7), halves(512, 512, 3, 3), pad=1))
    other, container = read_back(model)
    assert len(container.tasks) == 1
    assert_same_bits(model, other)


def test_two_outputs_and_an_output_that_is_read_again():
    x = image()
    y = af.conv(x, halves(16, 16, 3, 3), pad=1).named("y")
    model = compiled([y, (y + x).relu().named("w")])
    assert_same_bits(model, read_back(model)[0])


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_run_to_the_bit(seed):
    model = compiled(random_graph(seed)[0])
    if len(model.program.segments) > 1:
        pytest.skip("several segments are refused")
    assert_same_bits(model, read_back(model)[0])


def residual_network(widths=(16, 32), size=32):
    """A network in the shape of ResNet-18: a stem, two blocks a stage, a mean and a classifier."""
    y = af.conv(image(3, size), halves(widths[0], 3, 7, 7), stride=2, pad=3, bias=halves(widths[0])).relu()
    y = y.max_pool(3, 2, 1)
    channels = widths[0]
    for stage, width in enumerate(widths):
        for block in range(2):
            stride = 2 if stage and not block else 1
            branch = af.conv(y, halves(width, channels, 3, 3), stride=stride, pad=1, bias=halves(width)).relu()
            branch = af.conv(branch, halves(width, width, 3, 3), pad=1, bias=halves(width))
            short = y if channels == width else af.conv(y, halves(width, channels, 1, 1), stride=stride)
            y, channels = (branch + short).relu(), width
    return y.mean((2, 3)).reshape(1, channels).linear(halves(10, channels), halves(10))


def transformer(tokens=12, width=32, heads=4):
    """One block of a transformer."""
    x = af.input((tokens, width), name="x")
    y = x.layer_norm(halves(width) + 1, halves(width))
    split = (tokens, heads, width // heads)
    q, k, v = (y.linear(halves(width, width)).reshape(*split).transpose((1, 0, 2)) for _ in range(3))
    scores = af.matmul(q, k.transpose((0, 2, 1))) * (width // heads) ** -0.5
    mixed = af.matmul(scores.softmax(-1), v).transpose((1, 0, 2)).reshape(tokens, width)
    x = x + mixed.linear(halves(width, width))
    y = x.layer_norm(halves(width) + 1, halves(width)).linear(halves(2 * width, width), halves(2 * width)).gelu()
    return x + y.linear(halves(width, 2 * width))


def test_a_residual_network_is_expressed_whole():
    model = compiled(residual_network())
    other, container = read_back(model)
    assert len(container.record.expressed) == len(model.program.layers)
    relus = sum(layer.op == "add" for layer in model.program.layers)  # each is a task of its own behind its sum
    assert len(container.tasks) == len(model.program.layers) + relus
    assert_same_bits(model, other)


def test_a_transformer_runs_to_the_bit():
    model = compiled(transformer())
    other, container = read_back(model)
    assert container.record.expressed
    assert {task.form for task in container.record.not_expressed} <= {"matmul", "reshape", "transpose", "add"}
    assert_same_bits(model, other)


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_whole_networks_come_back_from_files(name, tmp_path):
    """ResNet-18 and ViT-Tiny at 224 x 224."""
    model = compiled(str(EXAMPLES / f"{name}.py"))
    emit(model.program).write(tmp_path / "net.hwx")
    assert_same_bits(model, af.load_program(tmp_path / "net.hwx"))


# The registers are what is read.


def changed(container: Any, task: int, meaning: str, value: int):
    """The container with one field of one task set to another value."""
    found = resolved("h13", meaning)
    assert found is not None
    register, field = found
    words = container.tasks[task]
    old = words.word(register.address)
    new = value if field is None else field.write(old, value)
    data = bytearray(container.to_bytes())
    text = container.section("__text", "__TEXT")
    place = text.offset + words.offset + 4 * len(words.header_words)
    for command in words.commands:
        for number, (address, _) in enumerate(command.writes()):
            if address == register.address:
                start = place + 4 * (1 + number)
                assert int.from_bytes(data[start : start + 4], "little") == old
                data[start : start + 4] = new.to_bytes(4, "little")
        place += 4 * (1 + len(command.values))
    return read_container(bytes(data))


@pytest.mark.parametrize(
    ("meaning", "value", "by_hand"),
    [
        ("planar.operation", 1, lambda x, z: x * z),
        ("planar.operation", 2, af.maximum),
        ("planar.second", 3, lambda x, z: x - z),
        ("planar.relu", 1, lambda x, z: (x + z).relu()),
    ],
)
def test_another_planar_code_is_another_result(meaning, value, by_hand):
    model = compiled(image() + image(name="z"))
    container = emit(model.program)
    feeds = feeds_of(model.program)
    (result,) = Model(model.graph, decode(changed(container, 0, meaning, value))).run(feeds).outputs.values()
    expected = compiled(by_hand(image(), image(name="z")))(**feeds, dtype="float16")
    assert result.tobytes() == expected.tobytes()
    assert (result != model.run(feeds).outputs[model.program.outputs[0].name]).any()


@pytest.mark.parametrize(
    ("meaning", "value", "by_hand"),
    [
        ("kernel.left", 0, {"pad": ((1, 1), (0, 2))}),
        ("kernel.top", 2, {"pad": ((2, 0), (1, 1))}),
    ],
)
def test_another_padding_is_another_convolution(meaning, value, by_hand):
    kernel, x = halves(16, 16, 3, 3), image()
    model = compiled(af.conv(x, kernel, pad=1))
    other = Model(model.graph, decode(changed(emit(model.program), 0, meaning, value)))
    (top, bottom), (left, right) = by_hand["pad"]
    padded = af.pad(image(), ((0, 0), (0, 0), (top, bottom), (left, right)))
    expected = compiled(af.conv(padded, kernel))
    feeds = feeds_of(model.program)
    assert next(iter(other.run(feeds).outputs.values())).tobytes() == expected(**feeds, dtype="float16").tobytes()
    assert next(iter(model.run(feeds).outputs.values())).tobytes() != expected(**feeds, dtype="float16").tobytes()


@pytest.mark.parametrize(
    ("meaning", "stride", "pad"),
    [("kernel.stride_x", (1, 2), ((0, 0), (0, 5))), ("kernel.stride_y", (2, 1), ((0, 5), (0, 0)))],
)
def test_another_stride_is_another_convolution(meaning, stride, pad):
    """The result keeps its extents, so the wider steps of the window end behind the tensor, in padding."""
    kernel = halves(16, 16, 3, 3)
    model = compiled(af.conv(image(16, 8), kernel))
    other = Model(model.graph, decode(changed(emit(model.program), 0, meaning, 2)))
    expected = compiled(af.conv(af.pad(image(16, 8), ((0, 0), (0, 0), *pad)), kernel, stride=stride))
    feeds = feeds_of(model.program)
    assert next(iter(other.run(feeds).outputs.values())).tobytes() == expected(**feeds, dtype="float16").tobytes()
    assert next(iter(model.run(feeds).outputs.values())).tobytes() != expected(**feeds, dtype="float16").tobytes()


def test_weights_are_those_of_the_constants():
    model = compiled(af.conv(image(), halves(16, 16, 1, 1)))
    container = emit(model.program)
    data = bytearray(container.to_bytes())
    section = container.section("__const", "__TEXT")
    assert section is not None
    data[section.offset : section.offset + section.size] = bytes(section.size)
    other = Model(model.graph, decode(read_container(bytes(data))))
    assert not next(iter(other.run(feeds_of(model.program)).outputs.values())).any()


def test_a_register_without_a_meaning_is_an_error_with_its_place():
    container = emit(compiled(image() + image(name="z")).program)
    with pytest.raises(ContainerError, match="task 0 has planar work"):
        decode(changed(container, 0, "task.type", 7))
    with pytest.raises(ContainerError, match=r"reads \(16, 8, 4\) and gives \(16, 8, 8\)"):
        decode(changed(container, 0, "in.width", 4))


# Programs of the vendor have no debug section.


def as_vendor(container, names):
    """A container without the debug section: registers, constants and descriptors only."""
    tasks = [
        Task("h13", task.header_words, task.words[len(task.header_words) :], task.offset) for task in container.tasks
    ]
    shapes = {port.name: port for port in container.ports}
    tensors = [
        CallerTensor(name, shapes[name].role, shapes[name].shape, row_bytes=shapes[name].strides[2]) for name in names
    ]
    return assemble(Parts("h13", tensors, tasks, container.constants, 0x4000 if len(tasks) > 1 else 0))


@pytest.mark.parametrize(
    ("kind", "names"), [("add", ["x", "z", "y"]), ("conv", ["x", "y"]), ("matmul", ["x", "product"])]
)
def test_programs_without_a_debug_section_run(kind, names):
    """The published programs, whose words the tests above compare, with weights that are known here."""
    model = compiled(published_graph(kind, (64, 8, 8)))
    bare = read_container(as_vendor(emit(model.program), names).to_bytes())
    assert bare.section("__debug_info") is None
    program = decode(bare)
    assert [port.name for port in program.inputs] == names[:-1]
    feeds = feeds_of(model.program)
    shaped = {port.name: feeds[port.name].reshape(port.user_shape) for port in program.inputs}
    (result,) = Model(model.graph, program).run(shaped).outputs.values()
    (expected,) = model.run(feeds).outputs.values()
    assert result.reshape(expected.shape).tobytes() == expected.tobytes()


# What is refused.


def test_programs_of_the_driver_refuse_work_without_words():
    container = emit(compiled(af.input((8, 64), name="x").floor().named("s")).program)
    with pytest.raises(AneforgeError, match=r"^s: cannot run on hardware: 1 task is carried as text.*--allow-text"):
        container.to_anec()
    assert len(container.to_anec(allow_text=True)) > 0x1000


def test_several_segments_are_refused():
    model = compiled(af.space_to_channel(af.minmax_norm(af.input((1, 4, 4, 4), name="x")), 2))
    assert len(model.program.segments) > 1
    with pytest.raises(AneforgeError, match="a container holds one"):
        emit(model.program)


def test_flipped_bits_are_errors_or_programs_that_run():
    x = image()
    model = compiled((af.conv(x, halves(16, 16, 3, 3), pad=1).tanh() + x).softmax(1).max_pool(2))
    container = emit(model.program)
    data, feeds = container.to_bytes(), feeds_of(model.program)
    sections = [container.section("__text", "__TEXT"), container.section("__debug_info", "__DEBUG")]
    read = 0
    for place in range(600):
        section = sections[place % 2]
        assert section is not None
        flipped = bytearray(data)
        flipped[section.offset + int(rng.integers(section.size))] ^= 1 << int(rng.integers(8))
        try:
            Model(model.graph, decode(read_container(bytes(flipped)))).run(feeds)
            read += 1
        except AneforgeError:
            continue
    assert 0 < read < 600


@pytest.mark.parametrize("part", ["layers", "weights", "buffers", "stats", "plan"])
def test_a_program_from_a_container_says_that_it_has_no_schedule(part):
    program = decode(emit(compiled(image().relu()).program))
    with pytest.raises(AneforgeError, match="has tasks, and no layers"):
        getattr(program, part)


def test_ports_of_two_sizes_are_refused():
    container = emit(compiled(image().relu()).program)
    section = container.section("__debug_info", "__DEBUG")
    assert section is not None
    data = bytearray(container.to_bytes())
    start = data.index(b'"shape": [1, 16', section.offset)
    data[start : start + 15] = b'"shape": [3, 16'
    with pytest.raises(ContainerError, match="not equally many numbers"):
        decode(read_container(bytes(data)))


def test_a_debug_section_of_another_version_is_refused():
    data = bytearray(debug_bytes({"a": 1}, {"w": halves(3)}))
    content, arrays = read_debug(bytes(data))
    assert content == {"a": 1}
    assert arrays["w"].shape == (3,)
    data[8] = 9
    with pytest.raises(ContainerError, match="version 9"):
        read_debug(bytes(data))
    with pytest.raises(ContainerError, match="states"):
        read_debug(bytes(debug_bytes({"a": 1}, {}))[:30])
