"""Activation tables of the constants: published layout and sizes, the simulator's knots, and the way back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from aneforge.chips.limits import published_table
from aneforge.codegen.dialect import written_generations
from aneforge.codegen.tables import activation_of, table_bytes
from aneforge.errors import UnknownNameError
from aneforge.sim.tables import activation, knots_of, tabulated

EXAMPLES = Path(__file__).resolve().parents[2] / "shared" / "facts" / "hwx" / "examples"


def halves(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.float16)


@pytest.mark.parametrize("generation", written_generations())
def test_a_table_has_the_published_size(generation):
    table = table_bytes("sigmoid", generation)
    assert len(table.data) == 128
    assert not any(table.data[86:])


def test_the_sigmoid_has_the_published_ends():
    """N37, and exact samples between -8 and 8 (N38)."""
    words = halves(table_bytes("sigmoid", "h16").data)
    assert words[:5].tolist() == [-9.9375, 8.3203125, 0, 1, np.float16(1 / (1 + np.exp(8)))]
    assert (words[20], words[36]) == (0.5, np.float16(1 / (1 + np.exp(-8))))


@pytest.mark.parametrize(("tables", "generation"), [("m1", "h13"), ("m6", "h18")])
@pytest.mark.parametrize("name", ["sigmoid", "gelu", "swish", "tanh", "erf"])
def test_the_simulator_gives_the_knots_of_the_table(name, tables, generation):
    """At each knot but the last, where some functions follow their tail already."""
    words, knots = halves(table_bytes(name, generation).data), knots_of(name, tables)
    x = np.linspace(knots.first, knots.last, 33)[:-1]
    at_knots = np.float16(x) == x
    assert at_knots.sum() > 4  # of the steps of 0.13 on h13, few are fp16 numbers
    results = activation(name, (), tables)[x[at_knots].astype(np.float16).view(np.uint16)]
    assert np.array_equal(results, words[4:36][at_knots])


@pytest.mark.parametrize("generation", written_generations())
def test_every_table_says_which_activation_it_is(generation):
    for name in tabulated():
        expected = "sigmoid" if name == "high_precision_sigmoid" else name
        assert activation_of(table_bytes(name, generation).data, generation) == expected


def test_a_table_with_other_slopes_is_still_known():
    table = bytearray(table_bytes("gelu", "h16").data)
    table[74:86] = bytes(range(12))
    assert activation_of(bytes(table), "h16") == "gelu"


@pytest.mark.parametrize("place", [0, 3, 8, 40, 73])
def test_a_table_with_another_end_or_knot_is_not_known(place):
    table = bytearray(table_bytes("gelu", "h16").data)
    table[place] ^= 0x40
    assert activation_of(bytes(table), "h16") is None


def test_a_table_with_more_behind_it_is_not_known():
    table = table_bytes("gelu", "h13").data + bytes(72) + b"\1"
    assert activation_of(table, "h13") is None


def test_a_table_cut_short_is_not_known():
    assert activation_of(table_bytes("gelu", "h16").data[:100], "h16") is None


def test_an_activation_without_knots_is_refused():
    with pytest.raises(UnknownNameError, match="elu: no knots of its table are known; choose one: cos, erf"):
        table_bytes("elu", "h13")


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the published facts are not beside this checkout")
@pytest.mark.parametrize("generation", ["h16", "h18"])
def test_the_sigmoid_has_the_published_hash(generation):
    example = json.loads((EXAMPLES / f"{generation}__unary_sigmoid_c64.json").read_text(encoding="utf-8"))
    table = table_bytes("sigmoid", generation)
    assert (len(table.data), table.evidence) == (example["kernel_section"]["size"], "hash")
    assert hashlib.sha256(table.data).hexdigest() == example["kernel_section"]["sha256"]


def test_tables_without_a_published_hash_do_not_claim_one():
    tables = {(name, generation) for name in tabulated() for generation in written_generations()}
    claims = {table for table in tables if table_bytes(*table).evidence == "hash"}
    published = {
        "gelu": ("h14", "h16", "h17", "h18"),
        "swish": ("h15", "h16", "h17", "h18"),
        **dict.fromkeys(("sigmoid", "high_precision_sigmoid"), ("h16", "h18")),
    }
    assert claims == {(name, chip) for name, chips in published.items() for chip in chips}


@pytest.mark.parametrize("name", ["gelu", "swish"])
@pytest.mark.parametrize("generation", written_generations())
def test_gelu_and_swish_have_the_hash_of_published_programs(name, generation):
    """C72: one table of each for every chip; hwx/third has them for h14 to h18."""
    found = hashlib.sha256(table_bytes(name, generation).data[:128]).hexdigest()
    assert found == published_table(name)["sha256"]


def test_the_simulator_follows_the_tails_of_the_table():
    """At -9.9375 the line gives way to 0; half way up it is the line of the table's own halfwords."""
    words, results = halves(table_bytes("sigmoid", "h16").data).astype(np.float64), activation("sigmoid")

    def at(x: float) -> float:
        return float(results[np.float16(x).view(np.uint16)])

    assert (at(-9.9375), at(-20), at(8.3203125), at(20)) == (0, 0, 1, 1)
    assert at(-9) == np.float16(words[37] * -9 + words[38])
    assert at(8.125) == np.float16(words[39] * 8.125 + words[40]) < 1
