# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Core ML programs in: every op of MIL against coremltools' own value inference, or against plain NumPy."""

from __future__ import annotations

from pathlib import Path

import coreml_cases_math  # noqa: F401 - fills the list of cases
import coreml_cases_moves  # noqa: F401
import numpy as np
import pytest
from coreml_kit import CASES, Case, inferred, mb, numbers, package

import aneforge as af
from aneforge.formats import coreml

X = numbers(1, 4, 6, 8)


@pytest.mark.parametrize("each", CASES)
def test_an_op_means_what_core_ml_says(each: Case, tmp_path: Path) -> None:
    graph = coreml.read(package(tmp_path, each.build, each.feeds, each.target))
    if each.expected is None:
        wanted = inferred(each.build, each.feeds, each.target)
    else:
        made = each.expected(*each.feeds)
        wanted = list(made) if isinstance(made, (list, tuple)) else [made]
    feeds = dict(zip("xyzw", each.feeds, strict=False))
    found = af.evaluate(graph, {port.name: feeds[port.name or ""] for port in graph.inputs})
    assert len(found) == len(wanted)
    for have, want in zip(found, wanted, strict=True):
        assert have.shape == (np.shape(want) or (1,))
        np.testing.assert_allclose(have, np.reshape(want, have.shape), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("op", ["random_uniform", "random_normal", "random_bernoulli"])
def test_random_numbers_are_read_with_their_shape(op: str, tmp_path: Path) -> None:
    graph = coreml.read(package(tmp_path, lambda x: mb.add(x=x, y=getattr(mb, op)(shape=[1, 4, 6, 8])), [X]))
    assert graph.outputs[0].shape == X.shape
    assert any(each.op.startswith("random") for each in graph)


def test_every_op_of_the_matrix_is_ruled_hosted_or_refused_with_a_reason() -> None:
    from aneforge.chips import store
    from aneforge.formats.coreml.mil import CONTROL
    from aneforge.formats.coreml.table import REFUSED, ROWS

    matrix = [row["mil"] for row in store.load("ops")["mil_matrix"]]
    rows = {op: (how, reason) for op, how, reason in coreml.coverage()}
    assert len(matrix) == 187
    assert set(matrix) <= set(rows)
    for op, (how, reason) in rows.items():
        assert how in ("native form", "equivalent", "host", "refused"), op
        if how == "refused":
            assert reason, op
            assert op in REFUSED, op
        else:
            assert op in ROWS or op in CONTROL or op in ("fill", "range_1d"), op
    tested = {each.values[0].op for each in CASES}
    untested = {op for op, (how, _) in rows.items() if how != "refused"} - tested
    beside = {"const", "classify", "read_state", "write_state", "coreml_update_state", "dequantize", "acosh", "asinh"}
    beside |= {op for op in untested if op.startswith(("constexpr_", "random_", "list_", "make_list"))}
    assert untested == beside & untested, sorted(untested - beside)
