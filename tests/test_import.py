"""Nothing is lost between the published facts and the package data, and the generated pages are current."""

from __future__ import annotations

import json
from pathlib import Path

import import_facts
import pytest
import write_docs

from aneforge.chips import store

FACTS = Path(__file__).resolve().parents[2] / "shared" / "facts"
here = pytest.mark.skipif(not FACTS.is_dir(), reason="the published facts are not beside this checkout")


def normal(node):
    """Sources as lists everywhere; nothing else changes."""
    if isinstance(node, list):
        return [normal(item) for item in node]
    if isinstance(node, dict):
        return {key: import_facts.as_list(value) if key == "src" else normal(value) for key, value in node.items()}
    return node


@here
@pytest.mark.parametrize("topic", [*import_facts.TOPICS, *import_facts.SECOND_TOPICS, *import_facts.THIRD_TOPICS])
def test_every_record_unpacks_to_the_published_one(topic):
    published = import_facts.read_topic(FACTS, topic)
    packed = store.load(topic)
    assert packed["meta"] == published["_meta"]
    for key, value in published.items():
        if key != "_meta":
            assert import_facts.expand(packed[key], packed["evidence"]) == normal(value), key
    assert set(packed) - {"meta", "evidence"} == set(published) - {"_meta"}


@here
@pytest.mark.parametrize("section", ["values", "values_without_offset"])
def test_every_hal_cell_unpacks_to_the_published_one(section):
    published = json.loads((FACTS / "hal_values.json").read_text(encoding="utf-8"))
    packed = store.load("hal_values")
    assert packed["targets"] == published["_meta"]["targets"]
    assert list(packed[section]) == list(published[section])
    for field, row in published[section].items():
        column = packed[section][field]
        for number, name in enumerate(packed["targets"]):
            cell = {"v": column["v"][number], **column.get("extra", {}).get(name, {})}
            if column["e"][number] >= 0:
                src, conf, tier = packed["evidence"][column["e"][number]]
                cell.update({key: value for key, value in (("src", src), ("conf", conf), ("tier", tier)) if value})
            assert normal(cell) == normal(row.get(name, {"v": None})), (field, name)


@here
def test_conflicts_and_sources_are_the_published_ones():
    text = import_facts.read_conflicts(FACTS)
    records = store.load("conflicts")["conflicts"]
    assert len(records) == text.count("\n| C")
    for number, row in records.items():
        assert f"| {number} | {row['subject']} | {row['values']} | {row['winner']} |" in text
    assert store.load("sources")["sources"] == import_facts.read_sources(FACTS)


@here
@pytest.mark.parametrize("generation", import_facts.GENERATIONS)
def test_every_register_unpacks_to_the_published_one(generation):
    published = json.loads((FACTS / "hwx" / f"registers_{generation}.json").read_text(encoding="utf-8"))
    packed = store.load("registers")
    blocks = []
    for block in packed["generations"][generation]["blocks"]:
        rows = []
        for row in packed["registers"][f"{generation} {block['name']}"]:
            fields = [dict(zip(("name", "lsb", "width", "meaning"), field, strict=True)) for field in row["fields"]]
            fields = [{key: value for key, value in field.items() if value != ""} for field in fields]
            place = {} if block["base"] is None else {"addr": int(block["base"], 16) + int(row["offset"], 16)}
            rows.append({**row, "fields": fields, **place})
        blocks.append({**block, "registers": rows})
    for block in published["blocks"]:
        for row in block["registers"]:
            row["fields"] = [{key: value for key, value in field.items() if value != ""} for field in row["fields"]]
            if block["base"] is None:
                row.pop("addr", None)
            else:
                row["addr"] = int(row["addr"], 16)
    assert {**packed["generations"][generation], "blocks": blocks} == published


@here
@pytest.mark.parametrize(("part", "file"), [("container", "container"), ("headers", "td_header"), ("codes", "enums")])
def test_what_is_known_of_containers_is_the_published(part, file):
    published = json.loads((FACTS / "hwx" / f"{file}.json").read_text(encoding="utf-8"))
    assert store.load("programs")[part] == published


@here
@pytest.mark.parametrize("file", sorted((FACTS / "hwx" / "examples").glob("*.json")), ids=lambda file: file.stem)
def test_the_examples_of_the_tests_are_the_published_ones(file):
    published = json.loads(file.read_text(encoding="utf-8"))
    kept = json.loads((Path(__file__).parent / "hwx_examples" / file.name).read_text(encoding="utf-8"))
    for task in published["tasks"]:
        task["header"] = len(task["header"])
        task["commands"] = [[command["word"], len(command["values"])] for command in task["commands"]]
    assert kept == published


def test_interning_is_reversible():
    tree = {
        "a": {"v": 1, "src": "S1", "conf": "decoded"},
        "b": [{"v": None}, {"v": 2, "src": ["S1"], "conf": "decoded"}],
    }
    table = import_facts.EvidenceTable()
    packed = import_facts.intern(tree, table)
    assert len(table.rows) == 1
    assert import_facts.expand(packed, table.rows) == normal(tree)
    assert json.loads(import_facts.dump({"meta": {}, **packed})) == {"meta": {}, **packed}


@pytest.mark.parametrize("name", write_docs.PAGES)
def test_the_generated_pages_are_current(name):
    committed = (write_docs.DOCS / name).read_text(encoding="utf-8")
    assert committed == write_docs.PAGES[name](), "run 'make docs'"


def test_every_choice_says_how_to_settle_it():
    for number, row in store.load("choices")["choices"].items():
        assert set(row) == {"subject", "choice", "because", "instead", "settle", "conflict"}, number
        assert row["settle"]
