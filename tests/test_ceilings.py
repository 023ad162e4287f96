"""Every published ceiling as a pair: the most that was seen to work is accepted, one more is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aneforge.advice.split.limits import QUANTITIES, Amounts, Ceilings, decimal_bytes
from aneforge.chips import store, target
from aneforge.chips.cache_writes import FORMS, KEPT, table, write_verdict
from aneforge.chips.ceilings import all_ceilings, ceilings, class_of
from aneforge.errors import DataError
from aneforge.study.labels import label_record

CHIPS = ("m1", "m4", "m5", "m6", "a17-pro", "a19-pro")
RUNTIMES = ("coreml", "coreai", "direct")
ROWS = [(ceiling, row) for ceiling, row in all_ceilings()]


def _places():
    """Every ceiling that applies somewhere, with a chip and a runtime where it does."""
    seen = {}
    for chip in CHIPS:
        for runtime in RUNTIMES:
            known = Ceilings.on(target(chip), runtime)
            for quantity in QUANTITIES:
                for kind in ("layers", "decoder", "convolutions"):
                    for ceiling in known.about(quantity, kind, unlike=False):
                        key = ceiling.id, ceiling.most, kind
                        seen.setdefault(key, (known, quantity, kind, ceiling))
    return list(seen.values())


PLACES = _places()


def _amounts(quantity: str, amount: float, kind: str) -> Amounts:
    if quantity == "mapped_bytes":
        return Amounts(cache_bytes=amount, kind=kind)
    whole = quantity in ("weight_bytes", "app_bytes")
    return replace(Amounts(kind=kind), **{quantity: amount if whole else int(amount)})


@pytest.mark.parametrize(("known", "quantity", "kind", "ceiling"), PLACES, ids=lambda one: getattr(one, "id", ""))
def test_just_below_is_accepted_and_just_above_refused(known, quantity, kind, ceiling):
    below = known.breaches(_amounts(quantity, ceiling.most, kind))
    assert ceiling not in [breach.ceiling for breach in below]
    above = known.breaches(_amounts(quantity, ceiling.most + 1, kind))
    (breach,) = [breach for breach in above if breach.ceiling == ceiling]
    assert ceiling.label in breach.words
    assert breach.to_json()["source"]


def test_every_row_is_reached():
    reached = {ceiling.id for _, _, _, ceiling in PLACES}
    assert {ceiling.id for ceiling, _ in ROWS} <= reached
    assert {"program-size", "decode-layers", "state-count"} <= reached


@pytest.mark.parametrize(("ceiling", "row"), ROWS, ids=lambda one: getattr(one, "id", ""))
def test_a_row_rests_on_facts_that_exist(ceiling, row):
    assert ceiling.facts
    assert all(label_record(number) for number in (*ceiling.facts, *row["src"], "U280")), ceiling.facts
    assert row.get("fails", row.get("multiple_of", 0) + 1) > ceiling.most
    assert ceiling.evidence.confidence == row["conf"]


def test_numbers_are_those_of_their_facts():
    """Where a fact has the number itself, the row has the same."""
    facts = {row["id"]: row["value"] for row in store.load("lifecycle")["facts"]}
    most = {ceiling.id: ceiling.most for ceiling, _ in ROWS}
    assert most["weight-files"] == facts["T04"]["files"]
    assert most["programs-mac"] == facts["T05"]["models"]
    assert most["programs-phone"] == facts["L25"]["ios"]
    assert most["bundle-bytes-phone"] == facts["T07"]["runs_gb"] * 1e9
    assert most["mapped-bytes"] == facts["L42"]["gib"] * 2**30
    assert most["bank-bytes"] == facts["T06"]["fails_gib"] * 2**30 - 1


def test_products_are_phones_or_macs():
    assert (class_of("A17 Pro"), class_of("M4"), class_of("nothing")) == ("phone", "mac", "mac")
    with pytest.raises(DataError):
        ceilings("weight", target("m4"), "M4", "coreml")


def test_bytes_are_decimal_as_limits_are_published():
    assert decimal_bytes(999_999_999) == "1.00 GB"
    assert decimal_bytes(40_000_000) == "40.0 MB"


# Writes of caches.


@pytest.mark.parametrize("row", store.load("program_ceilings")["cache_writes"], ids=lambda row: str(row.get("facts")))
def test_a_row_about_a_write_rests_on_facts_that_exist(row):
    assert row["verdict"] in ("runs", "fails", "unsure")
    assert row["kept"] in KEPT
    assert row.get("form", "slice") in FORMS
    assert all(label_record(number) for number in (*row["facts"], *row["src"]))


def test_every_published_form_is_used():
    used = {number for row in store.load("program_ceilings")["cache_writes"] for number in row["facts"]}
    published = {row["id"] for row in store.load("llm_limits")["cache_forms"]}
    elsewhere = {"CF07", "CF08", "CF09", "CF11"}  # of the order of ops, of unlike states (state-count), of CPU and GPU
    assert published - used == elsewhere


def test_a_system_decides_where_a_row_says_since_when():
    m4 = target("m4")
    assert write_verdict("slice", "state", m4, "coreml", "26.0").verdict == "runs"
    assert write_verdict("slice", "state", m4, "coreml", "18").verdict == "unsure"
    assert write_verdict("slice", "state", target("m5"), "coreml", "27.0").verdict == "unsure"
    assert write_verdict("indexed", "port", m4, "coreai", "27.0").verdict == "fails"
    assert write_verdict("rows", "port", target("m1"), "direct", "17").verdict == "runs"
    assert write_verdict("other", "port", m4, "coreml", "27.0").verdict == "unknown"


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_table_has_every_form(chip, runtime):
    verdicts = list(table(target(chip), runtime, "27.0"))
    assert {(verdict.form, verdict.kept) for verdict in verdicts} == {
        ("rows", "port"), *((form, kept) for form in ("slice", "shift", "blend", "indexed") for kept in KEPT)
    }  # fmt: skip
    assert all(verdict.facts for verdict in verdicts)
    assert all(str(verdict) for verdict in verdicts)
