# pyright: reportMissingImports=false
"""``.pt2`` files, quantised weights, open sizes, and what is refused."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn
from torch.nn import functional as fn
from torch_models import Classifier, MarkedCache, settled

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats.pytorch.adapter import from_exported, from_torch, read

quantised = torch.ops.quantized_decomposed


def exported(module: nn.Module, *inputs: Any, **options: Any) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, inputs, **options)


def saved(program: Any, path: Path) -> Path:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, path)
    return path


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any], **held: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in held.items():
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


# Files.


def test_a_saved_program(tmp_path: Path) -> None:
    module, x = settled(Classifier()), torch.randn(1, 3, 32, 32).half().float()
    graph = read(saved(exported(module, x), tmp_path / "net.pt2"), {}, {})
    found = af.evaluate(graph, {"image": x.numpy()})[0]
    with torch.no_grad():
        wanted = module(x).numpy()
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    assert {"stem", "layers.0.bn1", "head"} <= set(graph.names().values())
    again = from_torch(module, (x,))
    assert list(graph.names().values()) == list(again.names().values())
    assert list(graph.weights) == list(again.weights)


def test_a_saved_state(tmp_path: Path) -> None:
    inputs = torch.randn(1, 1, 16), torch.zeros(1, 8, 1), torch.zeros(1, 1, 8)
    graph = read(saved(exported(settled(MarkedCache()), *inputs), tmp_path / "cache.pt2"), {}, {})
    assert graph.states == {"cache": "cache_out"}


def test_weights_are_mapped_from_the_file(tmp_path: Path) -> None:
    from aneforge.formats.pytorch.archive import program_in

    module = nn.Linear(256, 256)
    file = saved(exported(module, torch.randn(1, 256)), tmp_path / "wide.pt2")
    weight = program_in(file)[0].state_dict["weight"]
    assert torch.equal(weight, module.weight)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no list of what is mapped")
    spans = [line.split()[0].split("-") for line in maps.read_text().splitlines() if line.endswith(file.name)]
    assert any(int(first, 16) <= weight.data_ptr() < int(last, 16) for first, last in spans)


def test_kinds_of_weights(tmp_path: Path) -> None:
    """Types that NumPy lacks, shared storage, strides, empty tensors."""
    table = torch.arange(12.0).reshape(3, 4)
    held = {"a": table.bfloat16(), "b": table.t(), "c": table[1:], "d": torch.zeros(0), "e": table.half()}

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        return x * m.a.float() + m.b.t() + m.c.sum() + m.d.sum() + m.e.float()

    module = Calls(function, **held)
    graph = read(saved(exported(module, torch.ones(3, 4)), tmp_path / "kinds.pt2"), {}, {})
    np.testing.assert_allclose(af.evaluate(graph, [np.ones((3, 4))])[0], module(torch.ones(3, 4)).numpy())


def test_open_sizes(tmp_path: Path) -> None:
    module, batch = settled(nn.Linear(4, 3)), torch.export.Dim("batch")
    program = exported(
        module, torch.randn(2, 5, 4), dynamic_shapes={"input": {0: batch, 1: torch.export.Dim("length")}}
    )
    file = saved(program, tmp_path / "open.pt2")
    with pytest.raises(LoadError, match=r"open.pt2: dimension input\[0\] is open .*dims=\{'input\[0\]': 1\}"):
        read(file, {}, {})
    graph = read(file, {"input[0]": 3, "input[1]": 7}, {})
    assert graph.inputs[0].shape == (3, 7, 4)
    assert graph.outputs[0].shape == (3, 7, 3)
    with pytest.raises(LoadError, match="no symbolic dimension 'batch'"):
        read(file, {"batch": 3, "input[0]": 3, "input[1]": 7}, {})
    x = torch.randn(2, 5, 4).half().float()
    fitted = from_torch(module, (x,), dynamic={"input": {0: batch}})
    assert fitted.inputs[0].shape == (2, 5, 4)
    assert from_exported(program, {"input[0]": 2, "input[1]": 1}).outputs[0].shape == (2, 1, 3)


# Quantised weights keep their codes.


def _stored(graph: af.Graph) -> list[Any]:
    return [each.weight.encoded for each in graph if each.weight is not None and each.weight.encoded is not None]


def test_weights_by_channel() -> None:
    codes = torch.randint(-127, 128, (6, 4), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    scale = torch.tensor([0.5, 0.25, 0.125, 1.0, 2.0, 0.0625])

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        zero = torch.zeros(6, dtype=torch.int64)
        weight = quantised.dequantize_per_channel(m.codes, m.scale, zero, 0, -127, 127, torch.int8)
        return fn.linear(x, weight)

    module, x = Calls(function, codes=codes, scale=scale), torch.randn(2, 4).half().float()
    graph = from_torch(module, (x,))
    (encoded,) = _stored(graph)
    assert (encoded.form, encoded.bits, encoded.shape) == ("affine", 8, (6, 4))
    np.testing.assert_array_equal(encoded.codes, codes.numpy())
    np.testing.assert_allclose(af.evaluate(graph, [x.numpy()])[0], module(x).numpy(), rtol=1e-3, atol=1e-3)


def test_turned_weights_and_kernels_keep_their_codes() -> None:
    codes = torch.randint(-127, 128, (6, 4), dtype=torch.int8, generator=torch.Generator().manual_seed(0))

    def product(m: Any, x: torch.Tensor) -> torch.Tensor:
        weight = quantised.dequantize_per_tensor(m.codes, 0.125, 0, -128, 127, torch.int8)
        return x.mean((2, 3)) @ weight.t() + x.mean((2, 3)) @ weight.permute(1, 0)

    def kernel(m: Any, x: torch.Tensor) -> torch.Tensor:
        weight = quantised.dequantize_per_channel(m.codes[:, :, None, None], m.scale, m.zero, 0, -128, 127, torch.int8)
        return fn.conv2d(x, weight)

    x = torch.randn(1, 4, 5, 5).half().float()
    held = {"codes": codes, "scale": torch.full((6,), 0.125), "zero": torch.full((6,), 2)}
    for function in (product, kernel):
        module = Calls(function, **held)
        graph = from_torch(module, (x,))
        assert {each.form for each in _stored(graph)} == {"affine"}
        np.testing.assert_allclose(af.evaluate(graph, [x.numpy()])[0], module(x).numpy(), rtol=1e-3, atol=1e-3)


def test_weights_by_tensor_and_by_group() -> None:
    codes = torch.randint(-8, 8, (6, 8), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    scale = torch.rand(6, 2).half().float() + 0.5

    def by_group(m: Any, x: torch.Tensor) -> torch.Tensor:
        weight = quantised.dequantize_per_channel_group(m.codes, m.scale, None, -8, 7, torch.int8, 4, torch.float32)
        return fn.linear(x, weight)

    def whole(m: Any, x: torch.Tensor) -> torch.Tensor:
        return fn.linear(x, quantised.dequantize_per_tensor(m.codes, 0.25, 3, -128, 127, torch.int8))

    x = torch.randn(2, 8).half().float()
    for function, form, bits in ((by_group, "blockwise", 4), (whole, "affine", 8)):
        module = Calls(function, codes=codes, scale=scale)
        graph = from_torch(module, (x,))
        (encoded,) = _stored(graph)
        assert (encoded.form, encoded.bits) == (form, bits)
        np.testing.assert_allclose(af.evaluate(graph, [x.numpy()])[0], module(x).numpy(), rtol=1e-3, atol=1e-2)


def test_quantised_activations_round_as_they_do() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        codes = quantised.quantize_per_tensor(x, 0.125, 3, -128, 127, torch.int8)
        return quantised.dequantize_per_tensor(codes, 0.125, 3, -128, 127, torch.int8)

    x = torch.linspace(-20, 20, 64).half().float()
    graph = from_torch(Calls(function), (x,))
    assert not any(each.op == "host" for each in graph)
    np.testing.assert_array_equal(af.evaluate(graph, [x.numpy()])[0], Calls(function)(x).numpy())


def _w8a8(scale: float, weight_scale: float, kernel: torch.Tensor) -> Any:
    """Quantise, dequantise, convolve with stored bytes, as exports of quantised models have it."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        codes = quantised.quantize_per_tensor(x, scale, 0, -128, 127, torch.int8)
        numbers = quantised.dequantize_per_tensor(codes, scale, 0, -128, 127, torch.int8)
        weight = quantised.dequantize_per_tensor(m.codes, weight_scale, 0, -128, 127, torch.int8)
        return fn.conv2d(numbers, weight)

    return from_torch(Calls(function, codes=kernel.to(torch.int8)), (torch.zeros(1, *kernel.shape[1:]),))


def _simulated(graph: af.Graph, chip: str, code: float, scale: float) -> float:
    model = af.compile(graph, target=chip)
    (port,) = model.program.inputs
    (found,) = model.run({port.name: np.full(port.user_shape, code * scale)}).outputs.values()
    return float(found.item())


def test_quantised_activations_and_weights_are_the_graphs_own() -> None:
    graph = _w8a8(0.25, 0.125, torch.ones(3, 4, 2, 2))
    assert [each.op for each in graph if each.op != "const"] == ["input", "quantize", "dequantize", "conv"]
    (encoded,) = _stored(graph)
    assert (encoded.form, encoded.bits) == ("affine", 8)


@pytest.mark.parametrize("chip", ["h16g", "h17s", "h18g"])
def test_sums_of_codes_are_32_bit_integers_scaled_at_the_end(chip: str) -> None:
    """int8_accumulator of numerics_train.json, read on an M6; N16."""
    least = torch.full((1, 65536, 1, 1), -128)
    assert _simulated(_w8a8(2.0**-8, 2.0**-8, least), chip, -128, 2.0**-8) == 16384.0
    with pytest.warns(af.PrecisionWarning, match=r"a sum of 8-bit codes that reaches 2\^31 is infinite"):
        assert _simulated(_w8a8(2.0**-8, 2.0**-8, least.repeat(1, 1, 2, 1)), chip, -128, 2.0**-8) == np.inf
    signs = torch.where(torch.arange(65536) < 32768, 127, -127).reshape(1, -1, 1, 1)
    assert _simulated(_w8a8(2.0**-7, 2.0**-7, signs), chip, 127, 2.0**-7) == 0.0
    assert _simulated(_w8a8(1.0, 1.0, torch.full((1, 4, 1, 1), 125)), chip, 100, 1.0) == 50016.0


def test_fake_quantisers_go_to_codes_and_back() -> None:
    scale, zero = torch.tensor([0.11, 0.23, 0.31]).half().float(), torch.tensor([3, 0, -5], dtype=torch.int32)

    def whole(m: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.13, 3, -128, 127)

    def narrow(m: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.13, 3, 0, 127)

    def by_channel(m: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_channel_affine(x, m.scale, m.zero, 1, -128, 127)

    x = torch.linspace(-40, 40, 96).reshape(4, 3, 8).half().float()
    for function, kinds in ((whole, {"quantize", "dequantize"}), (narrow, {"quantize", "clip"}), (by_channel, set())):
        module = Calls(function, scale=scale, zero=zero)
        graph = from_torch(module, (x,))
        assert kinds <= {each.op for each in graph}
        assert "host" not in {each.op for each in graph}
        found = np.asarray(af.evaluate(graph, [x.numpy().astype(float)])[0])
        np.testing.assert_allclose(found.reshape(x.shape), module(x).numpy(), atol=1e-5)


def test_codes_turned_into_numbers_by_hand_are_folded() -> None:
    codes = torch.randint(0, 16, (6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        weight = ((m.codes.to(torch.float32) - 8).reshape(6, 2, 4) * m.scale[:, :, None]).reshape(6, 8)
        return x @ weight.t()

    module = Calls(function, codes=codes, scale=torch.full((6, 2), 0.125))
    x = torch.randn(2, 8).half().float()
    graph = from_torch(module, (x,))
    assert [each.op for each in graph.operations] == ["linear"]
    np.testing.assert_allclose(af.evaluate(graph, [x.numpy()])[0], module(x).numpy(), rtol=1e-5, atol=1e-5)


# Inputs, outputs and names.


def test_kinds_of_inputs() -> None:
    class Mixed(nn.Module):
        def forward(self, pixels: torch.Tensor, keep: torch.Tensor, scale: float, ids: list[torch.Tensor]) -> Any:
            image = pixels.permute(0, 3, 1, 2).float() / 255
            return {"image": torch.where(keep, image * scale, -1.0), "ids": ids[0] + ids[1]}

    pixels = torch.randint(0, 256, (1, 4, 4, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    keep = torch.rand(1, 1, 4, 4) > 0.5
    ids = [torch.tensor([70000]), torch.tensor([2])]
    graph = from_torch(Mixed(), (pixels, keep, 0.5, ids), names=["picture", "sum"])
    assert [(each.name, each.dtype) for each in graph.inputs] == [
        ("pixels", "uint8"),
        ("keep", "fp16"),
        ("ids_0", "int32"),
        ("ids_1", "int32"),
    ]
    assert [each.name for each in graph.outputs] == ["picture", "sum"]
    feeds = {"pixels": pixels.numpy(), "keep": keep.numpy(), "ids_0": ids[0].numpy(), "ids_1": ids[1].numpy()}
    found = af.evaluate(graph, feeds)
    wanted = Mixed()(pixels, keep, 0.5, ids)
    np.testing.assert_allclose(found[0], wanted["image"].numpy(), rtol=1e-4, atol=1e-4)
    assert found[1] == [70002]


def test_an_input_that_is_written_to_is_a_state() -> None:
    class Grows(nn.Module):
        def forward(self, x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
            total.add_(x)
            return total * 2

    graph = from_torch(Grows(), (torch.ones(3), torch.zeros(3)))
    assert graph.states == {"total": "total_out"}
    found = af.evaluate(graph, {"x": np.ones(3), "total": np.arange(3.0)})
    assert [each.tolist() for each in found] == [[2, 4, 6], [1, 2, 3]]


def test_a_counter_is_a_state_on_the_host() -> None:
    class Counts(nn.Module):
        count: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x * self.count

    graph = from_torch(Counts(), (torch.ones(3),))
    assert graph.states == {"count": "count_out"}
    found = af.evaluate(graph, {"x": np.ones(3), "count": np.array([4])})
    assert [each.tolist() for each in found] == [[5, 5, 5], [5]]


def test_names_are_given_once() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.act = nn.GELU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.act(self.fc(x))
            return self.act(self.fc(x)) + x + 1.5

    graph = from_torch(settled(Shared()), (torch.randn(2, 4),), names={"x": "tokens"})
    names = list(graph.names().values())
    assert {"fc", "fc_1", "act", "act_1", "add", "add_1", "tokens"} <= set(names)


def test_an_output_that_is_an_input_or_stands_twice() -> None:
    graph = from_torch(Calls(lambda m, x: (x, x + 1, (x + 1) * 1, torch.ones(2))), (torch.ones(3),))
    found = af.evaluate(graph, [np.arange(3.0)])
    assert [each.tolist() for each in found] == [[0, 1, 2], [1, 2, 3], [1, 2, 3], [1, 1]]


def test_no_grad_inside_a_module() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        @torch.no_grad()
        def angles(self, x: torch.Tensor) -> torch.Tensor:
            return x.cos()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x) * self.angles(x)

    module, x = settled(Frozen()), torch.randn(2, 4).half().float()
    found = af.evaluate(from_torch(module, (x,)), [x.numpy()])[0]
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_a_number_that_is_read_out_can_be_fixed() -> None:
    class Cut(nn.Module):
        def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
            at: Any = place.item()
            torch._check(at >= 0)
            torch._check(at < 4)
            return x.narrow(1, at, 1) * 2

    x = torch.randn(1, 4).half().float()
    with pytest.raises(LoadError, match=r"Cut: .*fixed=\{"):
        from_torch(Cut(), (x, torch.tensor(2)))
    graph = from_torch(Cut(), (x, torch.tensor(2)), fixed={"place": 3})
    np.testing.assert_allclose(af.evaluate(graph, [x.numpy()])[0], x[:, 3:].numpy() * 2)


# What is refused, and how.

REFUSALS: dict[str, tuple[Callable[..., Any], torch.Tensor, str]] = {
    "a data-dependent size": (lambda m, x: x[x > 0], torch.randn(4), r"depends on the data"),
    "nonzero": (lambda m, x: x.nonzero(), torch.randn(4), r"depends on the data"),
    "complex numbers": (lambda m, x: torch.fft.rfft(x).abs(), torch.randn(4), r"complex numbers"),
    "random numbers": (lambda m, x: x + torch.randn(4), torch.randn(4), r"randn.*random numbers"),
    "random numbers like": (lambda m, x: x + torch.rand_like(x), torch.randn(4), r"rand.*random numbers"),
    "an output of six axes": (lambda m, x: x.view(2, 2, 2, 2, 2, 2).relu(), torch.randn(64), r"relu.*6 axes.*Reshape"),
    "a number beyond fp16": (lambda m, x: x + torch.tensor([7e4, 0.0]), torch.randn(2), r"fp16"),
    "a sign of complex": (lambda m, x: torch.view_as_complex(x.view(2, 2)).real, torch.randn(4), "complex numbers"),
    "no rule": (
        lambda m, x: torch.linalg.matrix_exp(x),
        torch.randn(3, 3),
        r"matrix_exp.default' is not supported",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_node(name: str) -> None:
    function, x, words = REFUSALS[name]
    with pytest.raises(LoadError, match=words) as caught:
        from_torch(Calls(function), (x,))
    assert str(caught.value).startswith("Calls: ")
    assert "\n" not in str(caught.value)


def test_a_module_in_training() -> None:
    x = torch.randn(2, 4, 4, 4)
    for module in (nn.BatchNorm2d(4), nn.Dropout(0.5)):
        with pytest.raises(LoadError, match=r"module\.eval\(\)"):
            from_torch(nn.Sequential(module.train()), (x,))


def test_what_cannot_be_traced() -> None:
    with pytest.raises(LoadError, match=r"^Calls: torch.export cannot trace the module"):
        from_torch(Calls(lambda m, x: x if x.sum() > 0 else -x), (torch.ones(2),))
    with pytest.raises(LoadError, match=r"expected a torch\.nn\.Module"):
        from_torch(torch.relu, (torch.ones(2),))
    with pytest.raises(LoadError, match=r"expected a torch\.export\.ExportedProgram"):
        from_exported(nn.Linear(1, 1))


def test_fixed_inputs_are_checked() -> None:
    module, x = nn.Linear(4, 4), torch.randn(1, 4)
    with pytest.raises(LoadError, match="no input 'y' to fix; the inputs are input"):
        from_torch(module, (x,), fixed={"y": 1})
    with pytest.raises(LoadError, match=r"must have shape \[1, 4\]"):
        from_torch(module, (x,), fixed={"input": np.zeros((3, 3))})


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


def _rewritten(source: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    with zipfile.ZipFile(source) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return target


def _edit(end: str, change: Callable[[Any], None]) -> Callable[[dict[str, bytes]], None]:
    def edit(entries: dict[str, bytes]) -> None:
        name = next(each for each in entries if each.endswith(end))
        document = json.loads(entries[name])
        change(document)
        entries[name] = json.dumps(document).encode()

    return edit


def _first_node(document: Any, **fields: Any) -> None:
    document["graph_module"]["graph"]["nodes"][0].update(fields)


def _first_weight(document: Any, **fields: Any) -> None:
    next(iter(document["config"].values())).update(fields)


def _sizes(document: Any) -> None:
    next(iter(document["config"].values()))["tensor_meta"]["sizes"] = [{"as_int": 1 << 40}, {"as_int": 4}]


def _drop(end: str) -> Callable[[dict[str, bytes]], None]:
    def drop(entries: dict[str, bytes]) -> None:
        for each in [name for name in entries if name.endswith(end)]:
            del entries[each]

    return drop


DAMAGE: dict[str, tuple[Callable[[dict[str, bytes]], None], str]] = {
    "a function that is no op": (
        _edit("model.json", lambda d: _first_node(d, target="torch.hub.load")),
        r"linear \(torch.hub.load\): not an ATen op",
    ),
    "an op that reads files": (
        _edit("model.json", lambda d: _first_node(d, target="torch.ops.aten.from_file.default")),
        "not an ATen op",
    ),
    "an op that does not exist": (
        _edit("model.json", lambda d: _first_node(d, target="torch.ops.aten.nothing.default")),
        "bad.pt2",
    ),
    "a pickled weight": (
        _edit("weights_config.json", lambda d: _first_weight(d, use_pickle=True)),
        "is pickled, and a pickle can run code",
    ),
    "a weight elsewhere": (
        _edit("weights_config.json", lambda d: _first_weight(d, path_name="../../etc/passwd")),
        "is not in the archive",
    ),
    "a weight of other sizes": (
        _edit("weights_config.json", _sizes),
        r"a tensor of shape \[1099511627776, 4\] needs more than its 48 bytes",
    ),
    "no weights": (_drop("weights_config.json"), "model_weights_config.json is missing"),
    "compiled code": (
        lambda entries: entries.update({f"{next(iter(entries)).split('/')[0]}/data/aotinductor/model/x.so": b""}),
        "compiled code, which is not run",
    ),
    "no JSON": (
        lambda entries: entries.update({next(e for e in entries if e.endswith("model.json")): b"{"}),
        "bad.pt2",
    ),
    "an empty program": (
        lambda entries: entries.update({next(e for e in entries if e.endswith("model.json")): b"{}"}),
        "models/model.json is not an exported program",
    ),
    "code in a size": (
        _edit("model.json", lambda d: d.update(x={"expr_str": "__import__('os').getcwd()"})),
        "is not an expression of sizes",
    ),
    "a size without end": (
        _edit("model.json", lambda d: d.update(x={"expr_str": "9**9**9**9"})),
        "is not an expression of sizes",
    ),
    "code in a name": (
        _edit("model.json", lambda d: _first_node(d, name="x = print(1)")),
        "is not an identifier",
    ),
    "a type to import": (
        _edit("model.json", lambda d: d.update(in_spec='{"__enum__": true, "fqn": "antigravity:x"}')),
        "have a type that must be imported",
    ),
    "nested without end": (
        lambda entries: entries.update({next(e for e in entries if e.endswith("model.json")): b"[" * 200000}),
        "cannot be read",
    ),
    "half a program": (_edit("model.json", lambda d: d["graph_module"].pop("signature")), "bad.pt2"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(exported(nn.Linear(4, 3), torch.randn(2, 4)), tmp_path_factory.mktemp("pt2") / "whole.pt2")


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files(whole: Path, tmp_path: Path, name: str) -> None:
    change, words = DAMAGE[name]
    file = _rewritten(whole, tmp_path / "bad.pt2", change)
    with pytest.raises(LoadError, match=words) as caught:
        read(file, {}, {})
    assert str(caught.value).startswith("bad.pt2: ")


def test_example_inputs_are_not_unpickled(whole: Path, tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"

    def trap(entries: dict[str, bytes]) -> None:
        name = next(each for each in entries if "sample_inputs" in each)
        buffer = io.BytesIO()
        torch.save(Trap(mark), buffer)
        entries[name] = buffer.getvalue()

    graph = read(_rewritten(whole, tmp_path / "trap.pt2", trap), {}, {})
    assert graph.inputs[0].shape == (2, 4)
    assert not mark.exists()


def test_guards_are_not_run(whole: Path, tmp_path: Path) -> None:
    change = _edit("model.json", lambda d: d.update(guards_code=["1 / 0 == 1"]))
    assert read(_rewritten(whole, tmp_path / "guarded.pt2", change), {}, {}).inputs[0].shape == (2, 4)


def test_truncated_files(whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes()
    for size in (0, 10, len(content) // 2, len(content) - 30):
        file = tmp_path / "cut.pt2"
        file.write_bytes(content[:size])
        with pytest.raises(LoadError, match=r"^cut.pt2: "):
            read(file, {}, {})


def test_other_archives(tmp_path: Path) -> None:
    import warnings

    module = nn.Linear(4, 3)
    file = tmp_path / "other.pt2"
    torch.save(module.state_dict(), file)
    with pytest.raises(LoadError, match=r"a file of torch.save\(\)"):
        read(file, {}, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(module, torch.randn(1, 4)), file)
    with pytest.raises(LoadError, match="TorchScript, not an exported program"):
        read(file, {}, {})
    file.write_bytes(pickle.dumps({"weight": 1}))
    with pytest.raises(LoadError, match="not an exported program"):
        read(file, {}, {})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/readme", "")
    with pytest.raises(LoadError, match="not an exported program"):
        read(file, {}, {})


def test_a_saved_graph_names_no_other_op() -> None:
    from aneforge.formats.pytorch.host import evaluate

    for kind in ("aten.from_file.default", "profiler._record_function_enter.default", "aten.system.default", "x"):
        with pytest.raises(af.GraphError, match="is not an op that the host computes"):
            evaluate(kind, '{"args": [], "kwargs": {}}', [], 0)
