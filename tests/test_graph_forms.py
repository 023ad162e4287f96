"""Rewrites of phase 2 as ops of the graph: the same numbers, and nothing of it is left to rewrite."""

from __future__ import annotations

import numpy as np
import pytest
from test_one_answer import FORMS

import aneforge as af
from aneforge.compiler.legal.passes import as_graph_for
from aneforge.compiler.legal.table import REWRITES
from aneforge.compiler.survey import survey
from aneforge.graph import Graph

CHIPS = ("h13", "h17s")


def rewritten(graph, chip):
    outcome = survey(graph, [af.target(chip)])[chip]
    return as_graph_for(graph, af.target(chip), [record for records in outcome.records.values() for record in records])


@pytest.mark.parametrize("form", FORMS)
def test_a_graph_form_has_the_numbers_of_the_op(form):
    x = af.input((1, 6, 8, 8), name="x")
    graph = Graph.of(FORMS[form](x))
    data = np.random.default_rng(3).normal(0, 1.5, x.shape).astype(np.float16).astype(np.float64)
    (want,) = af.evaluate(graph, {x: data})
    for chip in CHIPS:
        draft = rewritten(graph, chip)
        later = [record for record in draft.records if record.row.phase == 2]
        if later and not draft.host_inputs:
            (got,) = af.evaluate(draft.graph, {x: data})
            bound = max(record.bound.float64 for record in draft.records)
            np.testing.assert_allclose(got, want, rtol=0, atol=10 * bound * max(1.0, np.abs(want).max()))
            left = {entry.rewrite for entry in af.preflight(draft.graph, chip).decompose}
            assert left.isdisjoint(record.rewrite for record in later)


def test_every_form_is_reached():
    forms = {name for name, row in REWRITES.items() if row.form is not None}
    reached = set()
    for form in FORMS.values():
        graph = Graph.of(form(af.input((1, 6, 8, 8), name="x")))
        reached |= {record.rewrite for chip in CHIPS for record in rewritten(graph, chip).records}
    assert forms <= reached
