"""One engine of proposals: a change is priced by the study, refused with a reason, and named once for all chips."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.advice import search
from aneforge.advice.forms import PLAIN_FORMS
from aneforge.advice.proposals import Proposal, Workbench, context_on, places_of, price_alone
from aneforge.advice.ranking import SOURCES, _proposals, likely_cut
from aneforge.errors import GraphError
from aneforge.graph.forms import alone, applied
from aneforge.study.study import Study

PACKAGE = Path(af.__file__).parent


def attention_and_layer():
    rng = np.random.default_rng(0)
    q, k, v = (af.input((4, 512, 64), name=name) for name in "qkv")
    mixed = ((q @ k.transpose([0, 2, 1]) * 0.125).softmax(-1) @ v).named("mixed")
    return mixed.reshape(512, 256).linear(rng.normal(0, 0.1, (256, 256)).astype(np.float32)).named("layer")


def place_of(study, form, chip):
    known = next(known for known in PLAIN_FORMS if known.name == form)
    context = context_on(study.graph, study.chips[chip])
    return next(site for node in study.graph.nodes if (site := known.find(node, context)) is not None)


def test_a_price_is_the_estimate_of_the_changed_graph():
    study = Study(attention_and_layer(), "m1,m5")
    bench = Workbench(study)
    site = place_of(study, "query-tiles-4", "m1")
    prices = bench.price(Proposal(name="tiles", kind="rewrite", sites=(site,)), ["m1", "m5"])
    known, _ = study.with_graph(applied(study.graph, [site])).estimates()
    assert {name: figure.us for name, figure in prices.items()} == {name: one.us for name, one in known.items()}
    assert prices["m1"].interval == known["m1"].interval


def test_a_place_alone_has_the_time_of_its_own_graph():
    study = Study(attention_and_layer(), "m1,m5")
    places = next(places for places in places_of(study, PLAIN_FORMS) if places.form.name == "dense-as-conv")
    price_alone(study, places)
    before, after = alone(places.sites[0])
    assert places.before == study.with_graph(before).engine_us()
    assert places.after == study.with_graph(after).engine_us()


def test_nodes_left_to_the_host_cost_what_the_study_says():
    study = Study(attention_and_layer(), "m5")
    bench = Workbench(study)
    layer = next(node for node in study.graph.nodes if node.name == "layer")
    price = bench.price(Proposal(name="layer on the host", kind="cut", on_host=(layer,)), ["m5"])["m5"]
    assert price.us > bench.estimates["m5"].us


def test_a_change_that_cannot_be_built_has_a_reason_and_no_price():
    bench = Workbench(Study(attention_and_layer(), "m1,m5"))

    def broken():
        raise GraphError("layer: cannot be built")

    trials = bench.tried(broken, ["m1", "m5"])
    assert {trial.fault for trial in trials.values()} == {"refused: layer: cannot be built"}
    assert bench.price(Proposal(name="broken", kind="rewrite", graph=broken), ["m1", "m5"]) == {}


def test_the_same_change_on_several_chips_is_one_proposal():
    bench = Workbench(Study(attention_and_layer(), "m1..m6"))
    listed = [proposal for source in SOURCES for proposal in source(bench)]
    proposals = _proposals(bench)
    assert len(proposals) < len(listed)
    keys = [(proposal.name, proposal.what, proposal.nodes) for proposal in proposals]
    assert len(set(keys)) == len(keys)
    assert any(len(proposal.most) > 1 for proposal in proposals)


def test_proposals_that_say_the_same_are_two():
    """A form in layers of two shapes is two proposals of one name; one that failed does not count for the other."""
    assert len({Proposal(name="int8", kind="encoding"), Proposal(name="int8", kind="encoding")}) == 2


def test_a_likely_cut_is_another_cut_with_its_own_time():
    study = Study("examples/detector.onnx", "m1,m2,m5", scope="coreml_call")
    placed = study.partitions("placement")
    changes = likely_cut(study)
    assert list(changes) == ["m1"]
    for name, change in changes.items():
        assert placed[name].device_of != study.timed()[name].device_of
        assert change.us == placed[name].estimate(study.scope).us


def test_tune_compares_on_samples_of_a_file(tmp_path):
    out = af.input((4, 64), name="x").linear(np.ones((64, 64), np.float16))
    samples = np.random.default_rng(0).normal(size=(3, 4, 64)).astype(np.float16)
    np.savez(tmp_path / "samples.npz", x=samples)
    by_file = search(out, "m1", inputs=str(tmp_path / "samples.npz"))
    assert by_file.to_json() == search(out, "m1", inputs={"x": samples}).to_json()


@pytest.mark.parametrize("files", ["advice/*.py", "graph/*forms.py", "codecs/storages.py"])
def test_a_public_class_of_the_engine_is_defined_once_in_the_package(files):
    classes = Counter(name for file in PACKAGE.rglob("*.py") for name in public_classes(file))
    for file in PACKAGE.glob(files):
        assert {name for name in public_classes(file) if classes[name] > 1} == set(), file


def public_classes(file: Path) -> list[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
