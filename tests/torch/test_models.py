# pyright: reportMissingImports=false
"""Whole models against PyTorch: the meaning of the graph, the engine's numbers, the names, the verdicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch_models as models
from torch import nn
from torch_models import settled

import aneforge as af
from aneforge import files as budgets
from aneforge.formats.pytorch.adapter import from_torch

MEANING = 1e-4
ENGINE = 2e-2
"""Of the largest number of an output: what a few layers of fp16 may cost. Some models state their own."""


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half().float()


def far(found: Any, expected: Any) -> float:
    """How far apart two arrays are, in parts of the largest number."""
    wanted = expected.detach().numpy() if isinstance(expected, torch.Tensor) else np.asarray(expected)
    return float(np.abs(np.asarray(found, np.float64) - wanted).max() / np.abs(wanted).max())


CASES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...], list[str], float]] = {
    "residual network": (
        models.Classifier(),
        (drawn(1, 3, 32, 32),),
        ["layers.0.conv1", "layers.0.bn1", "layers.1.downsample.0", "layers.0.add", "head"],
        ENGINE,
    ),
    "mobile block": (
        models.Mobile(),
        (drawn(1, 8, 16, 16),),
        ["expand.0", "depthwise.0", "expand.2", "project.1", "squeeze"],
        ENGINE,
    ),
    "vision transformer": (
        models.VisionBlock(),
        (drawn(1, 3, 16, 16),),
        ["patch", "norm1", "attn.scaled_dot_product_attention", "mlp.0", "mlp.1", "mlp.2"],
        ENGINE,
    ),
    "u-net": (
        models.UNet(),
        (drawn(1, 4, 16, 16), torch.tensor([0.75])),
        ["enter.0", "enter.1", "enter.2", "up", "out", "time"],
        ENGINE,
    ),
    "tagger": (models.Tagger(), (drawn(1, 5, 8),), ["lstm", "tag"], ENGINE),
    "detector": (
        models.Detector(),
        (drawn(1, 8, 8, 8), drawn(1, 8, 4, 4)),
        ["heads.0", "heads.1", "sigmoid", "topk"],
        ENGINE,
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    module, inputs, names, bound = CASES[request.param]
    module = settled(module)
    return request.param, module, inputs, names, bound, from_torch(module, inputs)


def expected_of(module: nn.Module, inputs: Any) -> list[torch.Tensor]:
    with torch.no_grad():
        found = module(*inputs)
    return list(found) if isinstance(found, tuple) else [found]


def test_meaning(case: Any) -> None:
    name, module, inputs, _, _, graph = case
    found = af.evaluate(graph, [each.numpy() for each in inputs])
    bound = 1e-3 if name == "tagger" else MEANING  # two biases are one, rounded to fp16
    for got, wanted in zip(found, expected_of(module, inputs), strict=True):
        assert got.shape == tuple(wanted.shape)
        assert far(got, wanted) < bound


def test_names(case: Any) -> None:
    _, _, _, names, _, graph = case
    assert set(names) <= set(graph.names().values())
    assert len(set(graph.names().values())) == len(graph)


def test_origins(case: Any) -> None:
    """Every op of the graph comes from calls of the program, and every call is behind an op or has a reason."""
    *_, graph = case
    assert all(node.origins for node in graph.operations)
    assert "nothing reads its result" not in graph.file.without_node(graph.nodes).values()
    assert any(origin.module and origin.line for node in graph.operations for origin in node.origins)


@pytest.mark.parametrize("target", ["m1", "m5"])
def test_engine(case: Any, target: str) -> None:
    name, module, inputs, _, bound, graph = case
    if name == "detector" and target == "m1":
        pytest.skip("no topk on an M1 (C42): the test below says so")
    model = af.compile(graph, target=target, mode="fast")
    found = model(*(each.numpy() for each in inputs))
    listed = found if isinstance(found, list) else [found]
    for got, wanted in zip(listed, expected_of(module, inputs), strict=True):
        assert far(got, wanted) < bound


def test_verdicts(case: Any) -> None:
    name, _, _, names, _, graph = case
    reports = af.preflight_all(graph)
    assert len(reports) == 28
    assert reports["h13"].counts["native"] > 0
    assert all(sum(reports[chip].counts.values()) for chip in reports)
    report = af.preflight(graph, "m1")
    told = {entry.name for entry in (*report.native, *report.decompose, *report.reject)}
    assert told & set(names)
    if name == "detector":
        assert any("topk" in str(entry.name) for entry in af.preflight(graph, "m1").reject)


def test_an_encoder_with_token_ids() -> None:
    module = settled(models.Encoder())
    ids = torch.tensor([[3, 7, 49, 0, 12, 5]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    graph = from_torch(module, (ids, mask))
    assert {each.name: each.dtype for each in graph.inputs} == {"input_ids": "int32", "attention_mask": "int32"}
    found = af.evaluate(graph, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
    for got, wanted in zip(found, expected_of(module, (ids, mask)), strict=True):
        assert far(got, wanted) < MEANING
    hosted = [each for each in graph if each.op == "host"]
    kinds = sorted({each.attrs["kind"] for each in hosted})
    assert "aten.embedding.default" in kinds
    assert len(hosted) < 6, kinds
    assert {"word", "layer.0.query", "layer.1.output_norm", "pooler", "layer.0.softmax"} <= set(graph.names().values())


def test_an_encoder_with_a_fixed_mask() -> None:
    module = settled(models.Encoder())
    ids, mask = torch.tensor([[3, 7, 49, 0]]), torch.ones(1, 4, dtype=torch.int64)
    graph = from_torch(module, (ids, mask), fixed={"attention_mask": np.array([[1, 1, 0, 1]])})
    assert [each.name for each in graph.inputs] == ["input_ids"]
    found = af.evaluate(graph, {"input_ids": ids.numpy()})
    assert far(found[0], expected_of(module, (ids, torch.tensor([[1, 1, 0, 1]])))[0]) < MEANING


def stepped(graph: af.Graph, feeds: list[dict[str, np.ndarray]], states: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run after run, each on the states that the one before left."""
    results = []
    for each in feeds:
        found = af.evaluate(graph, {**each, **states})
        results.append(found[0])
        by_name = {output.name: value for output, value in zip(graph.outputs, found, strict=True)}
        states = {name: by_name[made] for name, made in graph.states.items()}
    return results


def test_a_decoder_with_its_cache_as_state() -> None:
    module = settled(models.Decoder())
    tokens = torch.tensor([[5], [17], [0], [39], [8]])
    graph = from_torch(module, (tokens[:1], torch.tensor([0])))
    caches = [f"layers.{i}.self_attn.{which}_cache" for i in range(2) for which in "kv"]
    assert sorted(graph.states) == sorted(caches)
    assert set(caches) <= {each.name for each in graph.inputs}
    start = {each.name: np.zeros(each.shape) for each in graph.inputs if each.name in graph.states}
    feeds = [{"input_ids": tokens[i : i + 1].numpy(), "position": np.array([i])} for i in range(5)]
    found = stepped(graph, feeds, start)
    for place in range(5):
        wanted = expected_of(module, (tokens[place : place + 1], torch.tensor([place])))[0]
        assert far(found[place], wanted) < 5e-4  # the table of angles is stored, so rounded to fp16
    crossing = [each for each in graph if each.op == "host" and each.shape and np.prod(each.shape) > 64]
    assert not crossing, crossing  # no cache goes to the host
    assert "layers.0.self_attn.q_proj" in graph.names().values()


def test_a_decoder_at_a_fixed_place() -> None:
    module = settled(models.Decoder())
    token, place = torch.tensor([[5]]), torch.tensor([3])
    graph = from_torch(module, (token, place), fixed={"position": 3})
    assert not any(each.op == "host" and each.attrs["kind"] == "aneforge.marks" for each in graph)
    feeds = {each.name: np.zeros(each.shape) for each in graph.inputs} | {"input_ids": token.numpy()}
    wanted = expected_of(module, (token, place))[0]
    assert far(af.evaluate(graph, feeds)[0], wanted) < 5e-4


@pytest.mark.parametrize("target", ["m1", "m5"])
def test_a_marked_cache_on_the_engine(target: str) -> None:
    module = settled(models.MarkedCache())
    inputs = [drawn(1, 1, 16, seed=i) for i in range(4)]
    marks = torch.eye(8).reshape(8, 1, 8, 1)
    masks = torch.where(torch.tril(torch.ones(8, 8)) > 0, 0.0, -1e4).reshape(8, 1, 1, 8)
    graph = from_torch(module, (inputs[0], marks[0], masks[0]))
    assert graph.states == {"cache": "cache_out"}
    assert not any(each.op == "host" for each in graph)
    model = af.compile(graph, target=target, mode="fast")
    state = np.zeros((1, 8, 16))
    module.get_buffer("cache").zero_()
    for place, x in enumerate(inputs):
        feeds = {"x": x.numpy(), "marks": marks[place].numpy(), "mask": masks[place].numpy(), "cache": state}
        outputs = model.run(feeds).outputs
        wanted = expected_of(module, (x, marks[place], masks[place]))[0]
        got = next(value for name, value in outputs.items() if name != "cache_out")
        assert far(got, wanted) < ENGINE
        state = outputs["cache_out"]
    assert far(state, module.get_buffer("cache")) < ENGINE


# What has host nodes runs in parts: the engine's simulated, the host's in float32.


@pytest.mark.parametrize("target", ["m1", "m5"])
def test_an_encoder_with_token_ids_in_parts(target: str) -> None:
    module = settled(models.Encoder())
    ids = torch.arange(10).reshape(1, 10) * 3
    mask = torch.ones(1, 10, dtype=torch.long)
    mask[:, 7:] = 0
    found = af.partition(from_torch(module, (ids, mask)), target)
    assert sorted({each.device for each in found.regions}) == ["engine", "host"]
    names = [each.name for each in found.graph.inputs]
    (got, *_) = found.run(dict(zip(names, (ids.numpy(), mask.numpy()), strict=True))).values()
    assert far(got, expected_of(module, (ids, mask))[0]) < ENGINE


@pytest.mark.parametrize("target", ["m1", "m5"])
def test_a_decoder_in_parts_step_by_step(target: str) -> None:
    module = settled(models.Decoder())
    tokens = torch.tensor([[5], [17], [0], [39]])
    graph = from_torch(module, (tokens[:1], torch.tensor([0])))
    found = af.partition(graph, target)
    held = {each.name: np.zeros(each.shape) for each in graph.inputs if each.name in graph.states}
    for place in range(4):
        feeds = {"input_ids": tokens[place : place + 1].numpy(), "position": np.array([place]), **held}
        outputs = found.run(feeds)
        held = {name: outputs[made] for name, made in graph.states.items()}
        wanted = expected_of(module, (tokens[place : place + 1], torch.tensor([place])))[0]
        assert (
            far(next(value for name, value in outputs.items() if name not in graph.states.values()), wanted) < ENGINE
        )


class Experts(nn.Module):
    """Rows in groups with a matrix each, as transformers writes mixtures of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ends = torch.tensor([2, 3, 6], dtype=torch.int32) + (x.sum() > 1e9).to(torch.int32)
        return torch.ops.transformers.grouped_mm_fallback(x.relu(), self.weight, ends).sigmoid()


def test_a_grouped_product_is_the_hosts_and_runs(tmp_path):
    from aneforge.formats.pytorch.host import declare_grouped_product

    declare_grouped_product()
    module, x = settled(Experts()), torch.randn(6, 8).half().float()
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "experts.pt2")
    split = af.partition(af.load(tmp_path / "experts.pt2"), "m1").only
    assert any("groups that the data decide" in why for why in split.reasons.values())
    (found,) = split.run({str(split.graph.inputs[0].name): x.numpy()}).values()
    rows = x.relu() @ module.weight[0], x.relu() @ module.weight[1], x.relu() @ module.weight[2]
    wanted = torch.cat([rows[0][:2], rows[1][2:3], rows[2][3:]]).sigmoid().detach().numpy()
    np.testing.assert_allclose(found, wanted, atol=4e-3)


def test_memory_that_nobody_reads_costs_nothing():
    """Classic attention processors give baddbmm a tensor that is not set, and tell it to take none of it."""

    class Scores(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            unset = torch.empty(q.shape[0], q.shape[1], k.shape[1])
            return torch.baddbmm(unset, q, k.transpose(1, 2), beta=0, alpha=0.5)

    inputs = torch.randn(2, 48, 8), torch.randn(2, 64, 8)
    with budgets.allow(folded_bytes=1000):
        graph = from_torch(Scores(), inputs)
    assert all(np.prod(weight.shape) == 1 for weight in graph.weights.values()), "the scale alone"
    found = np.reshape(af.evaluate(graph, [value.numpy() for value in inputs]), (2, 48, 64))
    np.testing.assert_allclose(found, Scores()(*inputs).numpy(), rtol=1e-4, atol=1e-5)
