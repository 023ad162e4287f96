"""Names people use, the separate namespaces, and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aneforge.chips import Family, all_targets, resolve, runtime_arch, target, target_names
from aneforge.chips.devices import all_devices, chip_records, find_devices, split_names
from aneforge.chips.names import chip_list, engine_names
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
        ("target:m11", "compiler", "m11"),
        ("T8103", "soc", "h13"),
        ("t6001", "soc", "h13g"),
        ("t6051", "soc", "h17s"),
        ("t6052", "soc", "h17d"),
        ("iphone 15 pro", "device", "h16"),
        ("iPhone15Pro", "device", "h16"),
        ("MacBook Neo", "device", "h17"),
        ("iPad Pro 11-inch (M4)", "device", "h16g"),
        ("ipad pro 11 m4", "device", "h16g"),
        ("Mac18,5", "device", "h18g"),
        ("device: iphone19,2", "device", "h19"),
        ("mac mini m4 pro", "device", "h16g"),
        ("M6 16GB", "product", "h18g"),
        ("a12z", "product", "h11"),
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
    if kind == "product":
        assert answer.target.product == answer.name
    else:
        assert (answer.target.product is None) == (kind in ("compiler", "runtime"))
    assert answer.fact.source
    assert answer.fact.confidence in ("measured", "decoded", "predicted", "inferred")


def test_every_alias_round_trips():
    for name, row in NAMES["products"].items():
        written = name if name != "A18" else "product:A18"
        for spelled in (written, written.upper(), written.lower(), f" {written} "):
            assert target(spelled).name == row["target"], spelled
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
        ("T8104", "T81"),
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


# Devices.

NO_TARGET = {"A11 Bionic": "cannot be used from Core ML", "S9": "no published target name", "S10": "no published"}


def test_every_device_resolves_or_says_why_not():
    assert len(all_devices()) == 192
    for device in all_devices():
        for name in (device.name, device.name.lower(), device.identifier, device.identifier.upper()):
            if device.chip in NO_TARGET:
                with pytest.raises(UnknownNameError, match=NO_TARGET[device.chip]) as error:
                    resolve(name)
                assert "\n" not in str(error.value)
            else:
                answer = resolve(name)
                assert (answer.kind, answer.target.product.split(" (")[0]) == ("device", device.chip), name


def test_every_chip_of_a_device_is_a_product_or_refused():
    assert set(chip_records()) - set(NO_TARGET) == set(NAMES["products"])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("m1,Mac18,5,iPhone16,1", ["m1", "Mac18,5", "iPhone16,1"]),
        ("Mac18, 5,m2", ["Mac18,5", "m2"]),
        ("MacBook Pro (14-inch, M2 Max, 2023),h13", ["MacBook Pro (14-inch, M2 Max, 2023)", "h13"]),
        ("m1..m3,iPad16,3", ["m1..m3", "iPad16,3"]),
    ],
)
def test_a_comma_of_a_name_separates_nothing(text, parts):
    assert split_names(text) == parts
    assert chip_list(text)[-1] == parts[-1]


def test_a_name_of_devices_with_several_chips_lists_them():
    for name, chips in (("Mac mini (2024)", ("M4", "M4 Pro")), ("iPhone SE", ("A13 Bionic", "A15 Bionic"))):
        with pytest.raises(UnknownNameError, match="ambiguous") as error:
            resolve(name)
        assert all(f"with {chip}" in str(error.value) for chip in chips)
        assert "\n" not in str(error.value)
    assert resolve("iPhone 15").target.product == "A16 Bionic"  # a whole name, although others begin with it


@pytest.mark.parametrize("identifier", ["iPhone19,1", "iPhone19,6", "Mac99,1"])
def test_refuted_identifiers_are_unknown(identifier):
    """C81: an encyclopedia had iPhone19,1 and 19,6."""
    assert not find_devices(identifier)
    with pytest.raises(UnknownNameError, match="no chip or target"):
        resolve(identifier)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("T8140", "shared by A18 and A18 Pro"),
        ("t8150", "shared by A19 and A19 Pro"),
        ("t8027", "shared by A12X Bionic and A12Z Bionic"),
        ("t600x", r"write the full number: T6000 \(M1 Pro\)"),
        ("t8310", "no published target name"),
    ],
)
def test_a_number_of_several_chips_asks_for_more(number, words):
    with pytest.raises(UnknownNameError, match=words):
        resolve(number)


@pytest.mark.parametrize(
    ("product", "reported", "given"),
    [
        ("M5 Max", "h17", "h17c"),
        ("M4 Pro", "h16g", "h16s"),
        ("M4 Max", "h16g", "h16c"),
        ("M5", "h17", "h17g"),
        ("A18 Pro", "h17", "h17p"),
        ("A18", "h17", "h17a"),
        ("A19 Pro", "h18", "h18p"),
        ("M5 Ultra", None, "h17d"),
        ("M6 (16 GB)", "h18g", "h18g"),
    ],
)
def test_both_names_of_an_engine(product, reported, given):
    """C71, C84: what the system reports, and what a compiler is given; other tables are a labelled choice."""
    names = engine_names(product)
    assert (names["reported by the system"].value, names["given to a compiler"].value) == (reported, given)
    used = names["tables used here"]
    assert used.value == target(f"product:{product}").name
    assert (used.conflict_id == "U190") == (used.value != given)


@pytest.mark.parametrize("name", ["m9", "M11", "m12"])
def test_a_target_that_reads_like_a_product_needs_its_prefix(name):
    with pytest.raises(UnknownNameError, match=f"no product is called that; write target:{name.lower()}"):
        chip_list(f"m1,{name}", typed=True)
    assert chip_list(f"target:{name}") == [f"target:{name}"]
    assert resolve(f"target:{name}").target == resolve(f"compiler:{name}").target
    assert chip_list("h13g,h17s,t1") == ["h13g", "h17s", "t1"]


def test_products_and_devices_are_suggested_first():
    with pytest.raises(UnknownNameError, match="nearest: M6") as error:
        resolve("M7")
    assert "m9" not in str(error.value)
    with pytest.raises(UnknownNameError, match="nearest: iPhone 15"):
        resolve("iphon 15")


def test_variants_have_their_own_memory():
    """C82, C83, C99."""
    from aneforge.cost.constants import physique_of, traits_of

    memory = {"M3 Max (30-core GPU)": 300, "M4 Max (32-core GPU)": 410, "M5 Max (32-core GPU)": 460, "M6 (16 GB)": 153}
    memory |= {"M6": 170, "M5 Ultra": 1200, "A20 Pro": 115.2}
    assert {name: physique_of(name).memory / 1e3 for name in memory} == pytest.approx(memory)
    assert target("Mac15,10").product == target("t6034").product == "M3 Max (30-core GPU)"
    assert target("Mac15,8").product == "M3 Max"
    assert traits_of(target("A20 Pro"), "A20 Pro")["engines"] == 2
