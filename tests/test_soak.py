"""The soak finds what it looks for: a few graphs agree, and each disagreement that is made on purpose is found.
``make soak`` tries ten thousand."""

from __future__ import annotations

import numpy as np
import pytest
import soak
from soaking import checks
from soaking.graphs import Recipe, drawn, recipe

CHIPS = ("h13", "h17s")


@pytest.mark.parametrize("seed", range(500, 512))
def test_everything_agrees_about_a_graph(seed):
    assert soak.problems(recipe(seed), CHIPS, False) == []


FOUND = (
    (Recipe(5902, (33977544, 162122643)), "h17", False),  # a step that is never taken, and Winograd's form
    (
        Recipe(5255, (89684343, 760110718, 201543052, 687492193, 315494635, 991035570)),
        "h15",
        True,
    ),  # all axes squeezed
    (Recipe(23230, (201657592, 119300994, 207147986, 241810897, 588484659)), "h14g", True),  # a mirrored edge
    (Recipe(8973, (774426868, 965693870, 638599409, 206068952, 215307072)), "u2", False),  # a root of nearly zero
)


@pytest.mark.parametrize(("graph", "chip", "export"), FOUND)
def test_what_a_soak_has_found_stays_right(graph, chip, export):
    if export:
        pytest.importorskip("coremltools")
    assert soak.problems(graph, (chip,), export) == []


def test_recipes_give_the_same_graph_again_and_reach_the_vocabulary():
    ops = {node.op for seed in range(150) for node in drawn(recipe(seed)).graph.nodes}
    assert len(ops) > 100
    one, other = (drawn(recipe(7)) for _ in range(2))
    assert str(one.graph) == str(other.graph)
    assert all(np.array_equal(a, b) for a, b in zip(one.reference, other.reference, strict=True))


def ran(seed):
    """A recipe of which both chips run the whole graph."""
    case = drawn(recipe(seed))
    return all(checks._compiled(case, chip)[0] is not None for chip in CHIPS)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("_plain", "native and plain"),
        ("_archive", "the saved program"),
        ("_container", "read back from its container"),
    ],
)
def test_other_bits_are_found(monkeypatch, function, words):
    seed = next(number for number in range(40) if ran(number))
    original, calls = checks._bits, []

    def altered(model, case):
        calls.append(model)
        bits = [value.copy() for value in original(model, case)]
        if len(calls) > 1:
            bits[0].reshape(-1).view(np.uint16)[0] ^= 1
        return bits

    if function == "_container":
        monkeypatch.setattr(checks, "_same", lambda one, other: False)
    else:
        monkeypatch.setattr(checks, "_bits", altered)
    assert any(words in problem for problem in soak.problems(recipe(seed), CHIPS, False))


def test_a_wrong_result_is_found_and_made_small(monkeypatch):
    original = checks._bits
    monkeypatch.setattr(checks, "_bits", lambda model, case: [value * 1.5 + 1 for value in original(model, case)])
    seed = next(number for number in range(40) if ran(number) and len(recipe(number).steps) > 3)
    found = [problem for problem in soak.problems(recipe(seed), CHIPS, False) if "away from the reference" in problem]
    assert found
    small = soak.smallest(recipe(seed), CHIPS, False, soak._kind(found[0]))
    assert len(small.steps) < len(recipe(seed).steps)


def test_a_step_can_be_left_out():
    assert Recipe(1, (2, 3, 4)).without(1) == Recipe(1, (2, 4))
