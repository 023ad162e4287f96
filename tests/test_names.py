"""Names people use, the separate namespaces, and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aneforge.chips import Family, all_targets, resolve, runtime_arch, target, target_names
from aneforge.chips.store import load
from aneforge.errors import AneforgeError, FamilyError, UnknownNameError

NAMES = load("names")


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("h13g", "compiler", "h13g"),
        ("H17S", "compiler", "h17s"),
        ("M1 Max", "product", "h13g"),
        ("m5 pro", "product", "h17s"),
        ("Apple M2", "product", "h14g"),
        ("apple-m4-max", "product", "h16g"),
        ("A17 Pro", "product", "h16"),
        ("a14_bionic", "product", "h13"),
        ("M6", "product", "h18g"),
        ("h18g", "compiler", "h18g"),
        ("m11", "compiler", "m11"),
        ("T8103", "soc", "h13"),
        ("t6001", "soc", "h13g"),
        ("T600x", "soc", "h13g"),
        ("T8112", "soc", "h14g"),
        ("runtime:h14g", "runtime", "h14g"),
        ("compiler: h14", "compiler", "h14"),
        ("product:A18", "product", "h17"),
    ],
)
def test_a_name_means_one_target(name, kind, expected):
    answer = resolve(name)
    assert (answer.kind, answer.target.name) == (kind, expected)
    assert answer.target is target(name)
    assert answer.target == target(expected)
    assert answer.target.product == (answer.name if kind == "product" else None)
    assert answer.fact.source
    assert answer.fact.confidence in ("measured", "decoded", "predicted", "inferred")


@pytest.mark.parametrize("section", ["products", "socs"])
def test_every_alias_round_trips(section):
    for name, row in NAMES[section].items():
        written = name if name != "A18" else "product:A18"
        for spelled in (written, written.upper(), written.lower(), f" {written} "):
            assert target(spelled).name == row["target"], spelled
        if section == "products":
            assert name in target(written).chips


def test_every_target_name_is_its_own_alias():
    for name in target_names():
        assert target(name).name == name == target(name.upper()).name


def test_a_product_belongs_to_exactly_one_target():
    products = [chip for each in all_targets() for chip in each.chips]
    assert len(products) == len(set(products)) == len(NAMES["products"])


def test_the_device_read_beats_the_ladder():
    answer = resolve("M2").fact
    assert answer.confidence == "measured"
    assert answer.conflict is not None
    assert answer.conflict.id == "C03"
    assert [loser.value for loser in answer.losers] == ["h14"]
    assert "not h14" in answer.label()


def test_runtime_strings_are_a_namespace_of_their_own():
    assert runtime_arch("h14g").target.name == "h14g"
    for name in ("h17d", "h16c", "u1", "M1"):  # compiler targets and products no device reports
        with pytest.raises(UnknownNameError, match="no runtime architecture"):
            runtime_arch(name)
    with pytest.raises(UnknownNameError, match="no runtime name"):
        resolve("runtime:h17d")
    with pytest.raises(UnknownNameError, match="no product name"):
        resolve("product:h13")


@pytest.mark.parametrize("label", ["A12", "a13", "A14", "A15", "A16", "A17", "A18", "A11Legacy"])
def test_family_labels_are_not_phone_chips(label):
    with pytest.raises(UnknownNameError, match="ambiguous") as error:
        target(label)
    assert "C36" in str(error.value)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("h13x", "h13"),
        ("M1 Mx", "M1 Max"),
        ("m5 prp", "M5 Pro"),
        ("T8104", "T8103"),
        ("A19 Bro", "A19 Pro"),
        ("M7", "M6"),
    ],
)
def test_an_unknown_name_lists_near_ones(name, near):
    with pytest.raises(UnknownNameError) as error:
        target(name)
    assert near in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("bad", ["", "   ", None, 3.5, ["h13"], b"h13", "h13;h14", "h" * 10_000, "\u2603"])
def test_nonsense_is_refused(bad):
    with pytest.raises(AneforgeError):
        target(bad)


def test_a_family_gives_its_representative():
    assert target(Family.A14).name == target(3).name == "h14"
    for bad in (0, 6, -1, 99, True):
        with pytest.raises(FamilyError):
            target(bad)
    with pytest.raises(UnknownNameError, match="OLDER"):
        target(1)


@given(st.text(max_size=12))
def test_any_text_resolves_or_is_refused_with_one_line(text):
    try:
        assert resolve(text).target.name in target_names()
    except AneforgeError as error:
        assert str(error).strip()  # noqa: PT017 - either outcome is right, a crash is not
