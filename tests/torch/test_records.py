# pyright: basic, reportMissingImports=false
"""Exported programs whose inputs and outputs are records of a library that is not there when they are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.formats.pytorch.structures import plain_structure

torch = pytest.importorskip("torch")

WRITER = """
import collections, dataclasses, sys
import torch
from torch.utils import _pytree as pytree


class Cache:
    def __init__(self, keys, values):
        self.keys, self.values = keys, values


class Output(collections.OrderedDict):
    pass


@dataclasses.dataclass
class Record:
    logits: torch.Tensor
    more: Output
    cache: Cache


Pair = collections.namedtuple("Pair", "low high")
named = {"serialized_type_name": "library.Cache"}
with_keys = lambda c: ([(pytree.MappingKey("keys"), c.keys), (pytree.MappingKey("values"), c.values)], None)
pytree.register_pytree_node(
    Cache, lambda c: ([c.keys, c.values], None), lambda v, _: Cache(*v), flatten_with_keys_fn=with_keys, **named
)
named_output = {"serialized_type_name": "library.Output"}
pytree.register_pytree_node(
    Output, lambda o: (list(o.values()), list(o)), lambda v, k: Output(zip(k, v)), **named_output
)
pytree._register_namedtuple(Pair, serialized_type_name="library.Pair")
torch.export.register_dataclass(Record, serialized_type_name="library.Record")


class Net(torch.nn.Module):
    def forward(self, x, past, pair):
        y = x + past.keys
        return Record(y, Output(twice=y * 2, none=None), Cache(y - past.values, pair.low * pair.high))


numbers = [torch.ones(2, 3) * n for n in range(1, 6)]
program = torch.export.export(Net(), (numbers[0], Cache(*numbers[1:3]), Pair(*numbers[3:])))
torch.export.save(program, sys.argv[1])
"""


def test_a_program_of_records_is_read_without_their_classes(tmp_path: Path) -> None:
    file = tmp_path / "net.pt2"
    subprocess.run([sys.executable, "-c", WRITER, str(file)], check=True, capture_output=True)
    graph = af.load(file)
    assert [tensor.name for tensor in graph.inputs] == ["x", "past_0", "past_1", "pair_0", "pair_1"]
    results = af.evaluate(graph, [np.full((2, 3), float(n)) for n in range(1, 6)])
    assert [float(result[0, 0]) for result in results] == [3, 6, 0, 20]


LEAF = {"type": None, "context": None, "children_spec": []}


def test_only_containers_of_python_keep_their_type() -> None:
    record = {"type": "library.Record", "context": '{"__enum__": true}', "children_spec": [LEAF]}
    text = json.dumps([1, {"type": "builtins.dict", "context": '["a"]', "children_spec": [record]}])
    protocol, changed = json.loads(plain_structure(text))
    assert protocol == 1
    assert (changed["type"], changed["context"]) == ("builtins.dict", '["a"]')
    assert changed["children_spec"] == [{"type": "builtins.tuple", "context": "null", "children_spec": [LEAF]}]
    plain = json.dumps([1, {"type": "builtins.list", "context": "null", "children_spec": [LEAF]}])
    assert plain_structure(plain) == plain


class OneRow(torch.nn.Module):
    """A linear layer whose weight has one axis, as D-FINE writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight)


class Computed(torch.nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, weight)


def test_a_linear_layer_of_one_row_has_no_last_axis() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    graph = af.from_torch(OneRow(), (x,))
    assert graph.outputs[0].shape == (2, 3)
    np.testing.assert_allclose(af.evaluate(graph, [x.numpy()])[0], OneRow()(x).detach().numpy())
    both = af.from_torch(Computed(), (x, torch.ones(4)))
    np.testing.assert_allclose(af.evaluate(both, [x.numpy(), np.ones(4)])[0], x.sum(-1).numpy())


class Powers(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = x.shape[0]
        return x.new_zeros(((count + 1) ** 2, 4)) + x[:1], x.new_ones((2**count, 4)) * x[:1]


def test_sizes_that_are_powers_are_whole_numbers(tmp_path: Path) -> None:
    open_sizes = {"x": {0: torch.export.Dim("n", min=2, max=9)}}
    program = torch.export.export(Powers(), (torch.randn(3, 4),), dynamic_shapes=open_sizes)
    torch.export.save(program, tmp_path / "powers.pt2")
    graph = af.load(tmp_path / "powers.pt2", dims={"x[0]": 3})
    assert [output.shape for output in graph.outputs] == [(16, 4), (8, 4)]


def test_powers_that_could_grow_without_limit_are_refused() -> None:
    from aneforge.formats.pytorch.archive import _has_small_powers

    assert _has_small_powers("Pow(Add(Symbol('s0'), Integer(1)), Integer(2))")
    assert not _has_small_powers("Pow(Integer(9), Integer(999999999))")
    assert not _has_small_powers("Pow(Integer(9), Mul(Integer(9), Integer(4)))")
    assert not _has_small_powers("Pow(" * 5 + "Integer(9)" + ", Integer(4))" * 5)
    assert not _has_small_powers("Pow(Integer(9), Integer(4)")


class Missing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zero = torch.zeros(4)
        return torch.where(x > 0, x, zero / zero)


def test_a_constant_that_is_nan_is_the_hosts() -> None:
    graph = af.from_torch(Missing(), (torch.randn(2, 4),))
    result = af.evaluate(graph, [np.array([[1.0, -1, 1, 1]] * 2)])[0]
    assert np.isnan(result[0, 1])
    assert "holds NaN" in next(node.attrs["reason"] for node in graph.nodes if node.op == "host")
