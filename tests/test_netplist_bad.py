"""Netplists that are wrong, damaged or hostile: one line that names file, unit and key, in bounded time and memory."""

from __future__ import annotations

import copy
import datetime
import plistlib
import random
import struct
import tracemalloc

import numpy as np
import pytest
from netplist_kit import bits, constant, document, half, port, save, unit, written

import aneforge as af
from aneforge import files as budgets
from aneforge.chips import store
from aneforge.errors import AneforgeError, LoadError
from aneforge.formats.netplist.document import PropertyListError, parse

RELU = {"Type": "ReLU"}
PLANE = (1, 4, 4, 4)
SYNTAX = r"\(InvalidParamSyntax\)"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>'


def small(**changes):
    """A sound netplist, with keys of its parts replaced: ``unit={...}``; None removes a key."""
    content = document({"u": unit("Neuron", "x", RELU)}, {"x": PLANE}, {"y": "u"})
    procedure = content["ProcedureList"][0]
    parts = {
        "top": content,
        "network": content["net"],
        "unit": content["net"]["u"],
        "procedure": procedure,
        "operation": procedure["OperationList"][0],
        "input": procedure["InputList"][0],
        "output": procedure["OutputList"][0],
        "binding": content["net"]["y"],
    }
    for part, keys in changes.items():
        for key, value in keys.items():
            if value is None:
                del parts[part][key]
            else:
                parts[part][key] = value
    return content


KEYS = {
    "a number as version": ({"top": {"Version": 1}}, rf"Version is 1; it must be a text {SYNTAX}"),
    "no number in version": ({"top": {"Version": "new"}}, r"Version is 'new'; it must be numbers with points"),
    "top key": ({"top": {"Netwroks": []}}, rf"key 'Netwroks' is unknown; nearest: Networks {SYNTAX}"),
    "no networks": ({"top": {"Networks": "net"}}, rf"Networks is 'net'; it must be a list {SYNTAX}"),
    "absent network": ({"top": {"net": None}}, r"network 'net': the network is listed but not described"),
    "no procedure": ({"top": {"ProcedureList": []}}, r"ProcedureList must be a list of one procedure or more"),
    "procedure key": (
        {"procedure": {"Inputs": []}},
        rf"procedure 0: key 'Inputs' is unknown; nearest: InputList, OutputList {SYNTAX}",
    ),
    "procedure name": ({"procedure": {"Name": 1}}, rf"procedure 0: Name is 1; it must be a text {SYNTAX}"),
    "no outputs": ({"procedure": {"OutputList": []}}, r"procedure 'main': OutputList is empty; name a result"),
    "two operations": (
        {"procedure": {"OperationList": [{"NetworkName": "net"}] * 2}},
        r"OperationList has 2 operations; exactly one is supported",
    ),
    "network name": (
        {"operation": {"NetworkName": "nut"}},
        rf"NetworkName is 'nut'; it must be one of Networks: 'net' {SYNTAX}",
    ),
    "operation name": (
        {"input": {"OperationName": "o"}},
        rf"input 'x': OperationName is 'o'; it must be an operation .*: op {SYNTAX}",
    ),
    "input key": ({"input": {"InputHigh": 1}}, rf"key 'InputHigh' is unknown; nearest: .*InputHeight.* {SYNTAX}"),
    "input width": ({"input": {"InputWidth": None}}, rf"input 'x': key 'InputWidth' is missing; add it {SYNTAX}"),
    "input size": (
        {"input": {"InputChannels": 0}},
        rf"input 'x': InputChannels is 0; it must be an integer of 1 or more {SYNTAX}",
    ),
    "huge size": ({"input": {"InputChannels": 1 << 40}}, r"InputChannels is 1099511627776; it must be an integer"),
    "true as size": ({"input": {"BatchSize": True}}, r"BatchSize is True; it must be an integer of 1 or more"),
    "interleave": (
        {"input": {"InputInterleave": 5}},
        rf"InputInterleave is 5; it must be one of 1, 2, 3, 4, 8 {SYNTAX}",
    ),
    "input type": (
        {"input": {"InputType": "Int8"}},
        r"input 'x': InputType is 'Int8', which is not supported; use Float16 or UInt8",
    ),
    "unit fed": ({"input": {"Name": "z"}}, r"input 'x': Name is 'z'; it must be a unit that reads the input"),
    "date": (
        {"input": {"InputName": datetime.datetime(2020, 1, 1)}},
        r"InputName is a value of type date; it must be a text",
    ),
    "data": ({"unit": {"Type": b"ReLU"}}, r"u: Type is a value of type data; it must be a text"),
    "output type": ({"output": {"OutputType": "Int8"}}, r"output 'y': OutputType is 'Int8', which is not supported"),
    "channels": ({"output": {"OutputChannels": 5}}, r"output 'y': OutputChannels is 5, but the value has 4 channels"),
    "binding": (
        {"binding": {"Bottom": ["u", "u"]}},
        rf"output 'y': binding: Bottom is a list of 2; it must be one symbol {SYNTAX}",
    ),
    "network key": ({"network": {"z": {}}}, rf"network 'net': key 'z' is unknown; .*Units.* {SYNTAX}"),
    "no units": ({"network": {"Units": []}}, r"network 'net': key 'Units' is missing or empty"),
    "absent unit": (
        {"network": {"u": None}},
        rf"'u': the unit is listed but not described; add its dictionary {SYNTAX}",
    ),
    "no dictionary": ({"network": {"u": 3}}, rf"net.plist: u: must be a dictionary, not 3 {SYNTAX}"),
    "unit key": ({"unit": {"Botom": "x"}}, rf"net.plist: u: key 'Botom' is unknown; nearest: Bottom {SYNTAX}"),
    "no type": ({"unit": {"Type": None}}, rf"u: key 'Type' is missing; add it {SYNTAX}"),
    "no bottom": ({"unit": {"Bottom": None}}, rf"u \(Neuron\): key 'Bottom' is missing; add it {SYNTAX}"),
    "wrong bottom": (
        {"unit": {"Bottom": 3}},
        rf"u \(Neuron\): Bottom is 3; it must be a name or a list of names {SYNTAX}",
    ),
    "params": ({"unit": {"Params": []}}, rf"u \(Neuron\): Params is a list of 0; it must be a dictionary {SYNTAX}"),
    "param key": (
        {"unit": {"Params": {"Typ": "ReLU"}}},
        rf"u \(Neuron\): parameter 'Typ' is unknown; .*Type {SYNTAX}",
    ),
    "param type": (
        {"unit": {"Params": {**RELU, "ReluMax": 0.5}}},
        rf"ReluMax is 0.5; it must be the bit pattern .* {SYNTAX}",
    ),
    "long value": ({"unit": {"Params": {"Type": "a" * 10**6}}}, rf"no name of a value is as long {SYNTAX}"),
    "long list": (
        {"unit": {"Params": {"Type": [0] * 10**5}}},
        rf"Type is a list of 100000; it must be one value {SYNTAX}",
    ),
    "other name": ({"unit": {"Name": "v"}}, rf"Name is 'v'; it must be 'u', as the unit is listed {SYNTAX}"),
    "result type": (
        {"unit": {"OutputType": "UInt16"}},
        r"u \(Neuron\): OutputType is 'UInt16', which is not supported; use Float16",
    ),
    "bottom types": (
        {"unit": {"InputType": ["Float16"] * 2}},
        rf"InputType is a list of 2; it must be a list of 1 types, .* {SYNTAX}",
    ),
    "unpublished type": (
        {"unit": {"Type": "PlaneReader"}},
        r"u \(PlaneReader\): the type is known but not supported",
    ),
    "unknown type": ({"unit": {"Type": "Telepathy"}}, r"u \(Telepathy\): 'Telepathy': not a type of native layer"),
    "input nobody reads": (
        {"procedure": {"InputList": [port("x", PLANE), port("z", PLANE)]}},
        r"input 'z': no output depends on it; remove the input",
    ),
}


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("name", KEYS)
def test_wrong_keys_are_named(tmp_path, name, binary):
    changes, message = KEYS[name]
    with pytest.raises(LoadError, match=message) as refused:
        af.load(save(tmp_path / "net.plist", small(**changes), binary))
    assert str(refused.value).startswith("net.plist: ")
    assert len(str(refused.value)) < 500
    assert len(af.load(save(tmp_path / "net.plist", small(), binary)).outputs) == 1


def test_every_unit_type_without_keys_is_known(tmp_path):
    """A type of the compiler's own list is told from a word that nobody knows."""
    for kind in store.load("enums")["unit_type"]["v"]:
        with pytest.raises(LoadError) as refused:
            af.load(save(tmp_path / "net.plist", small(unit={"Type": kind, "Params": {"no": 1}})))
        assert f"u ({kind}): " in str(refused.value)
        assert "not a type" not in str(refused.value), kind


VIEWS = {
    "Dimension": ({"Dimension": "Batch"}, "InvalidInputViewDimension"),
    "Offset": ({"Offset": 4}, "InvalidInputViewOffset"),
    "a negative offset": ({"Offset": -1}, "InvalidInputViewOffset"),
    "Size": ({"Offset": 2, "Size": 3}, "InvalidInputViewSize"),
    "no size": ({"Size": 0}, "InvalidInputViewSize"),
    "text as size": ({"Size": "1"}, "InvalidInputViewSize"),
    "Step": ({"Step": 0}, "InvalidInputViewStep"),
    "beyond the end": ({"Size": 2, "Step": 4}, "InvalidInputViewSize"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_has_the_names_of_its_own_errors(tmp_path, name):
    changes, error = VIEWS[name]
    params = {"Dimension": "Width", "Offset": 0, "Size": 1, **changes}
    with pytest.raises(LoadError, match=rf"u \(InputView\): .*\({error}\)$"):
        af.load(save(tmp_path / "net.plist", small(unit={"Type": "InputView", "Params": params})))
    good = {"Dimension": "Width", "Offset": 1, "Size": 2, "Step": 2}
    graph = af.load(save(tmp_path / "net.plist", small(unit={"Type": "InputView", "Params": good})))
    assert graph.outputs[0].shape == (1, 4, 4, 2)


# Names and wiring.


def relus(**wiring):
    return {name: unit("Neuron", bottom, RELU) for name, bottom in wiring.items()}


def test_units_come_in_any_order(tmp_path):
    units = relus(c="b", b="a", a="x")
    graph = af.load(written(tmp_path, units, {"x": PLANE}, {"y": "c"}))
    assert [node.name for node in graph] == ["x", "a", "b", "y"]


def test_cycles_and_dangling_symbols(tmp_path):
    with pytest.raises(LoadError, match=r"the units form a cycle: b -> c -> b; a unit cannot read its own result"):
        af.load(written(tmp_path, relus(a="x", b="c", c="b"), {"x": PLANE}, {"y": "c"}))
    with pytest.raises(LoadError, match=r"the units form a cycle: a -> a"):
        af.load(written(tmp_path, relus(a="a"), {"x": PLANE}, {"y": "a"}))
    with pytest.raises(LoadError, match=r"b \(Neuron\): bottom 'z' must be an input, a constant or a unit"):
        af.load(written(tmp_path, relus(a="x", b="z"), {"x": PLANE}, {"y": "a"}))
    ring = {f"u{number}": unit("Neuron", f"u{(number + 1) % 500}", RELU) for number in range(500)}
    with pytest.raises(LoadError, match=r"cycle: u0 -> u1 -> .* -> \.\.\. -> u0"):
        af.load(written(tmp_path, ring, {"x": PLANE}, {"y": "u0"}))


WORDS = 'ANE internal error: Unit name "{}" collision during MIL to ANEC IR conversion.'


@pytest.mark.parametrize(
    ("name", "change", "roles"),
    [
        ("u", {"network": {"Units": ["u", "u"]}}, "two units"),
        ("x", {"network": {"Units": ["u", "x"], "x": unit("Neuron", "u", RELU)}}, "a unit and an input"),
        ("x", {"network": {"Constants": ["x"], "x": constant("x")}}, "a constant and an input"),
        ("u", {"network": {"Constants": ["u"]}}, "a unit and a constant"),
        ("net", {"top": {"Networks": ["net", "net"]}}, "two networks"),
        ("Version", {"top": {"Networks": ["net", "Version"]}}, "a network and a key of the schema"),
        ("x", {"procedure": {"InputList": [port("x", PLANE)] * 2}}, "two inputs"),
        ("Units", {"network": {"Units": ["u", "Units"]}}, "a unit or constant and a key"),
    ],
)
def test_collisions_have_the_compilers_words(tmp_path, name, change, roles):
    with pytest.raises(LoadError) as refused:
        af.load(save(tmp_path / "net.plist", small(**change)))
    assert f"{name!r} names {roles}; rename one" in str(refused.value)
    assert WORDS.format(name) in str(refused.value)


def test_one_of_several_procedures(tmp_path):
    content = small()
    content["Networks"].append("other")
    content["other"] = {"Units": ["v"], "v": unit("Neuron", "x", {"Type": "Tanh"})}
    second = copy.deepcopy(content["ProcedureList"][0])
    second |= {"Name": "second", "OperationList": [{"NetworkName": "other"}], "OutputList": [{"OutputName": "v"}]}
    second["InputList"][0].pop("OperationName", None)
    content["ProcedureList"].append(second)
    file = save(tmp_path / "net.plist", content)
    assert "relu" in [node.op for node in af.load(file, function="main")]
    assert "tanh" in [node.op for node in af.load(file, function="second")]
    with pytest.raises(LoadError, match=r"has 2 procedures; choose one as function: 'main', 'second'"):
        af.load(file)
    with pytest.raises(LoadError, match=r"'third' is not a procedure of the file; choose one: 'main', 'second'"):
        af.load(file, function="third")
    content["ProcedureList"][1]["Name"] = "main"
    with pytest.raises(LoadError, match="'main' names two procedures"):
        af.load(save(file, content))


def test_a_unit_takes_the_name_of_its_output(tmp_path):
    graph = af.load(written(tmp_path, relus(a="x", b="a"), {"x": PLANE}, {"y": "b", "z": "b", "a": "a"}))
    assert [node.name for node in graph.outputs] == ["y", "z", "a"]
    assert [node.name for node in graph] == ["x", "a", "y", "z"]
    data = np.random.default_rng(1).standard_normal(PLANE)
    for result in af.evaluate(graph, [data]):
        np.testing.assert_array_equal(result, np.maximum(data, 0))


def test_a_depth_is_a_fifth_axis(tmp_path):
    graph = af.load(written(tmp_path, relus(u="x"), {"x": (1, 4, 3, 2, 5)}, {"y": "u"}))
    assert graph.inputs[0].shape == (1, 4, 3, 2, 5)
    deep = af.load(
        written(tmp_path, {"u": unit("Softmax", "x", {"Dimension": "Depth"})}, {"x": (1, 4, 3, 2, 5)}, {"y": "u"})
    )
    data = np.random.default_rng(3).standard_normal((1, 4, 3, 2, 5))
    grown = np.exp(data - data.max(2, keepdims=True))
    np.testing.assert_allclose(af.evaluate(deep, [data])[0], grown / grown.sum(2, keepdims=True), rtol=1e-9)
    flat = {"u": unit("Pool", "x", {"Type": "Max", "KernelWidth": 2, "KernelHeight": 2})}
    with pytest.raises(LoadError, match=r"u \(Pool\): the bottom \[1, 4, 3, 2, 5\] has a depth"):
        af.load(written(tmp_path, flat, {"x": (1, 4, 3, 2, 5)}, {"y": "u"}))


def test_bytes_come_in_as_numbers(tmp_path):
    graph = af.load(save(tmp_path / "net.plist", small(input={"InputType": "UInt8"})))
    assert graph.inputs[0].dtype == "uint8"
    data = np.arange(64, dtype=np.uint8).reshape(PLANE)
    np.testing.assert_array_equal(af.evaluate(graph, [data])[0], data)
    saved = af.save_netplist(graph, tmp_path / "again.plist")
    assert af.load(saved.path).inputs[0].dtype == "uint8"


# Weight files.

CONV = {"Type": "Conv", "KernelWidth": 1, "KernelHeight": 1}


def test_short_weights_name_unit_key_file_and_sizes(tmp_path):
    (tmp_path / "short.bin").write_bytes(half(20).tobytes())
    units = {"c": unit("Conv", "x", {**CONV, "KernelOffset": 8}, OutputChannels=8)}
    with pytest.raises(LoadError) as refused:
        af.load(written(tmp_path, units, {"x": PLANE}, {"y": "c"}, ["short.bin"]))
    told = "weight file 'short.bin' has 40 bytes; the 64 bytes at offset 8 are not inside it"
    assert str(refused.value) == f"net.plist: c (Conv): KernelOffset: {told}"
    units = {"u": unit("ElementWise", ["x", "k"], {"Type": "Add"})}
    constants = {"k": constant("k", (1, 4, 4, 4))}
    with pytest.raises(LoadError) as refused:
        af.load(written(tmp_path, units, {"x": PLANE}, {"y": "u"}, ["short.bin"], constants))
    told = "weight file 'short.bin' has 40 bytes; the 128 bytes at offset 0 are not inside it"
    assert str(refused.value) == f"net.plist: u (ElementWise): constant 'k': ConstantByteOffset: {told}"


CONSTANTS = {
    "index": ({"ConstantIndex": 1}, r"ConstantByteOffset: weight file 1 is out of range; Weights has 1 files"),
    "key": ({"Constantindex": 0}, rf"key 'Constantindex' is unknown; nearest: ConstantIndex.* {SYNTAX}"),
    "name": ({"ConstantName": "l"}, r"ConstantName is 'l'; it must be 'k'"),
    "type": ({"ConstantType": "Int4"}, r"ConstantType is 'Int4', which is not supported; use Float16 or UInt16"),
    "packing": (
        {"ConstantInterleave": 2, "ConstantWidth": 4},
        r"the order of packed channels in a file is not published",
    ),
    "offset": ({"ConstantByteOffset": -2}, r"ConstantByteOffset is -2; it must be an integer of 0 or more"),
    "size": (
        {"ConstantHeight": 1 << 30, "ConstantWidth": 1 << 30},
        r"has 128 bytes; the \d{19} bytes at offset 0 are not inside it",
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_wrong_constants(tmp_path, name):
    changes, message = CONSTANTS[name]
    (tmp_path / "w.bin").write_bytes(half(64).tobytes())
    units = {"u": unit("ElementWise", ["x", "k"], {"Type": "Add"})}

    def load(**keys):
        constants = {"k": constant("k", (1, 4, 1, 1)) | keys}
        return af.load(written(tmp_path, units, {"x": PLANE}, {"y": "u"}, ["w.bin"], constants))

    with pytest.raises(LoadError, match=rf"net\.plist: u \(ElementWise\): constant 'k': .*{message}"):
        load(**changes)
    assert "add" in [node.op for node in load(ConstantInterleave=4)]


def test_weight_files_are_regular_and_inside(tmp_path):
    units = {"c": unit("Conv", "x", CONV, OutputChannels=8)}
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/hostname")
    for name, message in (
        ("folder", "not a regular file"),
        ("link", "outside"),
        ("a\0b", "not a name"),
        ("x" * 999, ""),
    ):
        content = document(units, {"x": PLANE}, {"y": "c"}, [name])
        with pytest.raises(LoadError, match=rf"c \(Conv\): .*{message}"):
            af.load(save(tmp_path / "net.plist", content, binary=True))


# Property lists that are not.


def xml(body, head=HEAD):
    return f"{head}<plist>{body}</plist>".encode()


LAUGHS = (
    '<!DOCTYPE plist [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    + "]>"
)
XML = {
    "laughs": (xml("<string>&j;</string>", HEAD + LAUGHS), "DOCTYPE other than Apple's"),
    "an entity of a file": (
        xml("<string>&e;</string>", HEAD + '<!DOCTYPE plist [<!ENTITY e SYSTEM "file:///etc/hostname">]>'),
        "DOCTYPE other than Apple's",
    ),
    "another document": (b"<html><body/></html>", "starts with <html>"),
    "nesting": (xml("<array>" * 10**5 + "</array>" * 10**5), "nested deeper than 32"),
    "a deep dictionary": (xml("<dict><key>a</key>" * 10**4 + "</dict>" * 10**4), "nested deeper than 32"),
    "a long integer": (xml("<integer>" + "9" * 10**6 + "</integer>"), "is not an integer of 64 bits"),
    "no integer": (xml("<integer>ten</integer>"), "'ten' is not an integer"),
    "no number": (xml("<real>1.2.3</real>"), "'1.2.3' is not a number"),
    "two values": (xml("<true/><false/>"), "line 1: the document holds two values"),
    "no value": (xml(""), "the document holds no value"),
    "no key": (xml("<dict><true/></dict>"), "a value of a <dict> has no key"),
    "a key alone": (xml("<dict><key>a</key></dict>"), "the last key of a <dict> has no value"),
    "two keys": (xml("<dict><key>a</key><key>b</key></dict>"), "key 'a' has no value"),
    "a key twice": (xml("<dict><key>a</key><true/><key>a</key><true/></dict>"), "key 'a' occurs twice"),
    "a key in a list": (xml("<array><key>a</key></array>"), "<key> occurs outside a <dict>"),
    "elements in text": (xml("<string><true/></string>"), "<string> must hold text only, not <true>"),
    "text between": (xml("<array>loose</array>"), "text stands between elements"),
    "an unknown element": (xml("<set/>"), "<set> is not an element of property lists"),
    "not UTF-8": (xml("<string>").replace(b"<string>", b"<string>\xff\xfe</string>"), "not a property list"),
    "an unknown encoding": (xml("<true/>", '<?xml version="1.0" encoding="wtf-9"?>'), "not a property list"),
    "cut off": (xml("<dict><key>a</key><string>b</string>")[:-9], "not a property list"),
    "empty": (b"", "not a property list"),
}


@pytest.mark.parametrize("name", XML)
def test_bad_xml(tmp_path, name):
    content, message = XML[name]
    file = tmp_path / "net.plist"
    file.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(LoadError, match=rf"net\.plist: not a property list .*{message}|net\.plist: {message}"):
        af.load(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20


def test_apples_doctype_is_read():
    doctype = '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">'
    assert parse(xml("<array><string>a &amp; b</string></array>", HEAD + doctype), "x") == ["a & b"]


def test_both_readers_agree_with_the_library(tmp_path):
    """plistlib as an independent reference, on the values that netplists hold."""
    draw = random.Random(4)  # noqa: S311 - examples, not a secret

    def value(depth):
        kind = draw.randrange(8 if depth else 6)
        if kind == 6:
            return [value(depth - 1) for _ in range(draw.randrange(20))]
        if kind == 7:
            return {f"key {number} é": value(depth - 1) for number in range(draw.randrange(20))}
        big = draw.choice((0, 7, 200, 40000, 1 << 20, 1 << 40, -5, -(1 << 40)))
        return (draw.random(), big, True, False, "text" * draw.randrange(9), "é中" * draw.randrange(9))[kind]

    for _ in range(60):
        content = {"a": value(3), "b": value(2)}
        for fmt in (plistlib.FMT_XML, plistlib.FMT_BINARY):
            assert parse(plistlib.dumps(content, fmt=fmt), "x") == content


# Binary property lists, put together byte by byte.


def binary(objects, top=0, offset_size=4, reference_size=1, count=None, table=None):
    content, offsets = b"bplist00", []
    for each in objects:
        offsets.append(len(content))
        content += each
    place = len(content) if table is None else table
    content += b"".join(offset.to_bytes(offset_size, "big") for offset in offsets)
    return content + struct.pack(
        ">6xBBQQQ", offset_size, reference_size, len(objects) if count is None else count, top, place
    )


def array(*references):
    return bytes([0xA0 | len(references), *references])


LAUGHING = [array(*[number + 1] * 14) for number in range(9)] + [b"\x10\x01"]
BINARY = {
    "itself": (binary([array(0)]), "object 0 contains itself"),
    "a ring": (binary([array(1), array(2), array(0)]), "object 0 contains itself"),
    "laughs": (binary(LAUGHING), "over the budget plist_values"),
    "nesting": (binary([array(number + 1) for number in range(40)] + [b"\x09"]), "nested deeper than 32"),
    "too many objects": (binary([b"\x09"], count=1 << 60), "1152921504606846976 objects do not fit"),
    "no objects": (binary([b"\x09"], count=0), "0 objects do not fit"),
    "a table outside": (binary([b"\x09"], table=1 << 50), "1 objects do not fit"),
    "no top": (binary([b"\x09"], top=7), "object 7 of 1 is missing"),
    "a reference outside": (binary([array(9)]), "byte -1 is outside the file"),
    "a giant array": (binary([b"\xaf\x13" + (1 << 60).to_bytes(8, "big")]), "are outside the file"),
    "a giant text": (binary([b"\x5f\x13" + (1 << 60).to_bytes(8, "big")]), "are outside the file"),
    "a giant integer": (binary([b"\x1f" + b"\xff" * 40]), "starts no object"),
    "no length": (binary([b"\xaf\x09"]), "the length at byte 9 is not an integer"),
    "no object": (binary([b"\x70"]), "byte 8 starts no object"),
    "no text": (binary([b"\x51\xff"]), "cannot be decoded"),
    "half a letter": (binary([b"\x61\xd8\x00"]), "cannot be decoded"),
    "a key that is no text": (binary([b"\xd1\x01\x01", b"\x09"]), "a key of object 0 is not text"),
    "a key twice": (binary([b"\xd2\x01\x01\x02\x02", b"\x51a", b"\x09"]), "key 'a' occurs twice"),
    "cut off": (binary([b"\x09"])[:30], "the file is cut off"),
    "integers of no size": (binary([b"\x09"])[:-26] + b"\x00" + binary([b"\x09"])[-25:], "integers of 0 and 1 bytes"),
}


@pytest.mark.parametrize("name", BINARY)
def test_bad_binary(tmp_path, name):
    content, message = BINARY[name]
    file = tmp_path / "net.plist"
    file.write_bytes(content)
    with pytest.raises(LoadError, match=rf"net\.plist: .*{message}"):
        af.load(file)


def test_objects_that_overlap_stand_for_no_more_than_the_file():
    """Ten thousand texts that share their bytes would be a hundred million letters."""
    count, letters = 10_000, 10_000
    text = b"\x5f\x11" + letters.to_bytes(2, "big") + b"a" * letters
    head = b"bplist00" + b"\xaf\x11" + count.to_bytes(2, "big")
    head += b"".join(number.to_bytes(2, "big") for number in range(1, count + 1))
    offsets = [8, *[len(head)] * count]
    content = head + text
    table = b"".join(offset.to_bytes(4, "big") for offset in offsets)
    content += table + struct.pack(">6xBBQQQ", 4, 2, count + 1, 0, len(content))
    with pytest.raises(PropertyListError, match="objects overlap"):
        parse(content, "x")


def test_other_kinds_are_named():
    kinds = [b"\x33" + b"\0" * 8, b"\x41a", b"\x80\x01", b"\x00"]
    values = parse(binary([array(1, 2, 3, 4), *kinds]), "x")
    assert [repr(value) for value in values] == [f"a value of type {kind}" for kind in ("date", "data", "UID", "null")]


def test_budgets_hold(tmp_path):
    for is_binary in (False, True):
        file = save(tmp_path / "net.plist", small(), is_binary)
        with budgets.allow(plist_values=20), pytest.raises(LoadError, match="over the budget plist_values of 20"):
            af.load(file)
        with budgets.allow(plist_bytes=100), pytest.raises(LoadError, match="over the budget plist_bytes of 100"):
            af.load(file)
        with budgets.allow(nodes=0), pytest.raises(LoadError, match="over the budget nodes of 0"):
            af.load(file)


@pytest.mark.parametrize("is_binary", [False, True])
def test_a_hundred_thousand_units(tmp_path, is_binary):
    """In backward order, which a walk by recursion would not survive."""
    count = 100_000
    units = {f"u{number}": unit("Neuron", f"u{number - 1}" if number else "x", RELU) for number in range(count)}
    backward = dict(reversed(units.items()))
    graph = af.load(written(tmp_path, backward, {"x": (1, 1, 1, 1)}, {"y": f"u{count - 1}"}, binary=is_binary))
    assert len(graph.operations) == count


# Damage to the structure, where a damaged byte would only break the syntax.

VALUES = [0, 1, -1, 3, 1 << 15, (1 << 63) - 1, True, 0.5, float("nan"), float("inf"), "", "x", "act", "y", "Units",
          [], ["x"], [[[]]], {}, {"Bottom": "x"}, b"abc", datetime.datetime(2020, 1, 1), "a" * 1000, [1] * 1000,
          "Channel", "Depth", "UInt16", "Neuron", "SDPA", "Resize", "PlaneReader", "../x", "w.bin"]  # fmt: skip


def places(value, path=()):
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inside for place in places(each, (*path, key)))]


def damaged(content, seed):
    draw = random.Random(seed)  # noqa: S311 - damage, not a secret
    for _ in range(draw.randint(1, 2)):
        *path, last = draw.choice(places(content)[1:])
        holder = content
        for key in path:
            holder = holder[key]
        kind = draw.randrange(6)
        if kind == 0:
            del holder[last]
        elif kind == 1 and isinstance(holder, dict):
            holder[draw.choice(["Bottom", "z", "Type", "Name", "act", "y", "Units"])] = draw.choice(VALUES)
        elif kind == 2 and isinstance(holder, list):
            holder.append(copy.deepcopy(draw.choice(holder)))
        else:
            holder[last] = copy.deepcopy(draw.choice(VALUES))
    return content


def refusal(file):
    try:
        af.load(file)
    except AneforgeError as error:
        return str(error)
    return None


def test_a_damaged_structure_is_one_line_or_a_graph(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 64 + half(8, 4, 3, 3).tobytes() + half(1).tobytes())
    window = {"KernelWidth": 3, "KernelHeight": 3}
    turn = [("Channel", "Width"), ("Width", "Channel")]
    moves = [{"TransposeSourceDimension": a, "TransposeDestinationDimension": b} for a, b in turn]
    units = {
        "conv": unit("Conv", "x", {"Type": "Conv", **window, "KernelOffset": 64, "Step": [1, 1]}, OutputChannels=8),
        "act": unit("Neuron", "conv", {"Type": "LeakyReLU", "ReluSlope": bits(0.125)}),
        "view": unit("InputView", "act", {"Dimension": "Width", "Offset": 0, "Size": 2, "Step": 2}),
        "turn": unit("Transpose", "view", {"TransposeDimensions": moves}),
        "sum": unit("ElementWise", ["turn", "c"], {"Type": "Add"}),
        "red": unit("Reduction", "sum", {"Type": "Sum", "Dimension": ["Width"]}),
    }
    sound = document(units, {"x": (1, 4, 8, 8)}, {"y": "red"}, ["w.bin"], {"c": constant("c", offset=640)})
    file = tmp_path / "net.plist"
    assert af.load(save(file, sound)).outputs
    refused = 0
    for seed in range(600):
        content = damaged(copy.deepcopy(sound), seed)
        try:
            save(file, content, binary=bool(seed % 2))
        except (TypeError, ValueError, OverflowError):
            continue  # plistlib cannot write it
        message = refusal(file)
        if message is not None:
            refused += 1
            assert message.startswith("net.plist: "), seed
            assert "\n" not in message, seed
            assert len(message) < 600, seed
    assert refused > 400
