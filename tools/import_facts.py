"""Bring the published facts into the package: ``python tools/import_facts.py FACTS_FOLDER``.

The facts arrive as one JSON file per topic, where every value repeats its ``src`` and ``conf``. Two things
change on the way in, and nothing that is read is lost (``tests/test_import.py`` unpacks everything again and compares;
what no module reads is named in ``LEFT_OUT`` and stays outside):

* evidence is interned: a file holds each distinct (sources, confidence) pair once, in ``evidence``, and a
  record names it by number in ``e``;
* the HAL matrix becomes columns: one list of values and one list of evidence numbers per field, in the
  order of ``targets``; what only a few cells have (notes, conflicts, losing values) sits in ``extra``.

A second collection, newer, lies in the folder ``second``. Its numeric facts go behind those of the first, and so do
its conflicts and sources; its facts on compile, load and size, and the messages that people met, are topics of their
own. Of a third one, in ``third``, conflicts, sources, devices, the operators of ONNX Runtime's Core ML provider,
limits of language models and further facts and messages of these two topics are read; its README lists the sources
as ``KEY what it is; KEY what it is``.

One record stays on one line, so that a change to a fact is a one-line diff. ``seal`` writes the checksums
that the loader compares; run it after any deliberate edit of a data file:
``python tools/import_facts.py --seal``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "aneforge" / "chips" / "data"
TOPICS = (
    "targets",
    "hal_fields",
    "ops",
    "layers",
    "limits",
    "numerics",
    "fusion",
    "compression",
    "cost_model",
    "td_generations",
    "enums",
)
LEFT_OUT = {
    "targets": (
        "family8_enum family5_enum version_to_family_map subtype_to_td_generation suffix_to_num_nes m_to_h_rule "
        "soc_ids soc_ids_note name_parser unknown_name tiers_ch34"
    ),
    "hal_fields": "holdouts",
    "ops": (
        "high_floor_instantiations template_instantiation_counts region_ops texture_gated_dynamic_legality "
        "attested_not_reachable"
    ),
    "layers": (
        "non_layer_exports feature_gated_validators no_exported_validator classes_table_26_1 atoms_table_26_2 "
        "anec_attribute_schema lut_custom"
    ),
    "limits": "preflight_axis_rule slice_hazard kmem_rule",
    "numerics": "divergence_axes kernel_divergence_table_35_3 m1_blocks_table_35_4",
    "fusion": (
        "phases epilogue_slots atom_order patterns barriers undo matmul_to_conv activation_fold_example "
        "allocation_types chaining ocg bank conv_kernel_rewrite segment_cut goc_location"
    ),
    "compression": (
        "universal palette_alt kernel_format_enum element_types kernel_unit_sections ocg_record "
        "coefficient_streams codegen_version_matrix codegen_feature_first conflict_note zero_skip "
        "fp16_format_rule weight_tile_stride weight_lanes speedups"
    ),
    "cost_model": (
        "scaling_rules curves_missing soc_params core_scaling_m1 roofline_m1 roofline_m5 roofline_m6 roofline_m4 "
        "other_measured machines dispatch_budget_m1_us fusion_amortization_m1 m5pro_fits kernel_data"
    ),
    "td_generations": (
        "reported_defect crosscompiled image_kb opcode_words_h13 conv_cfg_word block_bases register_groups_ch20 "
        "register_groups_note stream_format header_words_v24 header_words_h13 ne_word_v24 kernel_word_v24 pe_ops "
        "format_codes feature_first_generation regressions dead_through_24 dma_encoding"
    ),
    "enums": (
        "activation_token dtype_serialized symbolized zin non_linear_mode opcode tensor_format dma_format_check "
        "small_source_mode hw_channel_format hw_kernel_format ne_op_mode_remap_td19 task_type_v24 allocation_type "
        "reduction_kind reduction_to_atomic interchange e5_tensor_type e5_op_type buffer_usage mil_blob_dtype "
        "neuron_types_10_26_6 ne_patterns_10_26_6 engine_classes attribute_keys legacy_opcode_hint"
    ),
    "llm_limits": "rates",
}
"""Records of the collections that no module reads: prose, counts, and tables that a newer file states better."""
SECOND, THIRD = "second", "third"
SECOND_TOPICS = {"lifecycle": ("lifecycle", "lifecycle_more"), "errors": ("errors_more",)}
"""Topics that begin in the second collection, and the files of the third that continue them."""
THIRD_TOPICS = ("llm_limits",)
"""Topics of the third collection alone: cuts, ceilings, cache forms and laws of language models."""
PROGRAM = "hwx"
"""The folder about compiled programs: containers, task headers and registers."""
GENERATIONS = ("h11", "h13", "h14", "h15", "h16", "h17", "h18")


class EvidenceTable:
    """Distinct (sources, confidence[, tier]) entries, numbered in order of first appearance."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._index: dict[str, int] = {}

    def number(self, *entry: Any) -> int:
        key = json.dumps(entry)
        if key not in self._index:
            self._index[key] = len(self.rows)
            self.rows.append(list(entry))
        return self._index[key]


def as_list(src: Any) -> Any:
    return [src] if isinstance(src, str) else src


def intern(node: Any, table: EvidenceTable) -> Any:
    """The same tree with ``src`` and ``conf`` replaced by ``e``."""
    if isinstance(node, list):
        return [intern(item, table) for item in node]
    if not isinstance(node, dict):
        return node
    packed = {key: intern(value, table) for key, value in node.items() if key not in ("src", "conf")}
    if "src" in node or "conf" in node:
        packed["e"] = table.number(as_list(node.get("src")), node.get("conf"))
    return packed


def expand(node: Any, evidence: list[list[Any]]) -> Any:
    """Undo :func:`intern`; sources always come back as lists."""
    if isinstance(node, list):
        return [expand(item, evidence) for item in node]
    if not isinstance(node, dict):
        return node
    tree = {key: expand(value, evidence) for key, value in node.items() if key != "e"}
    if "e" in node:
        src, conf = evidence[node["e"]]
        if src is not None:
            tree["src"] = src
        if conf is not None:
            tree["conf"] = conf
    return tree


def pack_topic(facts: dict[str, Any]) -> dict[str, Any]:
    table = EvidenceTable()
    body = {key: intern(value, table) for key, value in facts.items() if key != "_meta"}
    return {"meta": facts.get("_meta", {}), "evidence": table.rows, **body}


def read_topic(folder: Path, topic: str) -> dict[str, Any]:
    """One topic of the first collection, with the facts that the second adds to it."""
    if topic in SECOND_TOPICS:
        return _read_later_topic(folder, topic)
    facts = read_json((folder / THIRD if topic in THIRD_TOPICS else folder) / f"{topic}.json")
    if topic in THIRD_TOPICS:
        del facts["_meta"]["sources"]  # they are in sources.json with all others
    for key in LEFT_OUT.get(topic, "").split():
        del facts[key]
    if topic == "numerics":
        facts["facts"] += read_json(folder / SECOND / "numerics.json")["facts"]
    return facts


def _read_later_topic(folder: Path, topic: str) -> dict[str, Any]:
    """A topic of the second collection with the records that the third adds behind it."""
    facts = read_json(folder / SECOND / f"{topic}.json")
    (key,) = set(facts) - {"_meta"}
    for name in SECOND_TOPICS[topic]:
        facts[key] += read_json(folder / THIRD / f"{name}.json")[key]
    for record in facts[key]:
        if record.get("conf") == "second hand":  # no word of ours; the record keeps what it is in its note
            record |= {"conf": "unverified", "note": "; ".join(filter(None, (record.get("note"), "second hand")))}
    return facts


def read_sources(folder: Path) -> dict[str, Any]:
    listed = {**read_json(folder / "sources.json"), **read_json(folder / SECOND / "sources.json")}
    newer = {}
    for file in sorted((folder / THIRD).glob("*.json")):
        document = read_json(file)
        newer |= document.get("_meta", {}).get("sources", {}) if isinstance(document, dict) else {}
    newer |= parse_sources((folder / THIRD / "README.md").read_text(encoding="utf-8"))
    return listed | {key: about for key, about in newer.items() if key not in listed}


def parse_sources(text: str) -> dict[str, str]:
    """The source keys that a README lists in prose."""
    match = re.search(r"Keys of sources: (.*?)\.\n\n", text, re.DOTALL)
    if match is None:
        raise SystemExit("README.md of the third collection has no paragraph 'Keys of sources: KEY what it is; ...'")
    key = r"[A-Z][A-Z0-9.]*[A-Z0-9]"
    sources = {}
    for entry in " ".join(match[1].split()).split("; "):
        keys, about = re.fullmatch(rf"((?:{key}, )*{key}) (.*)", entry).groups()  # type: ignore[union-attr]
        sources |= dict.fromkeys(keys.split(", "), about)
    return sources


def read_conflicts(folder: Path) -> str:
    return "\n".join(
        (place / "CONFLICTS.md").read_text(encoding="utf-8") for place in (folder, folder / SECOND, folder / THIRD)
    )


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def pack_columns(matrix: dict[str, dict[str, Any]], targets: list[str], table: EvidenceTable) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for field, row in matrix.items():
        unlisted = set(row) - set(targets)
        if unlisted:
            raise SystemExit(f"HAL field {field} has values for unknown targets: {sorted(unlisted)}")
        values, evidence, extra = [], [], {}
        for target in targets:
            cell = row.get(target, {"v": None})
            values.append(cell["v"])
            known = "src" in cell or "conf" in cell or "tier" in cell
            evidence.append(
                table.number(as_list(cell.get("src")), cell.get("conf"), cell.get("tier")) if known else -1
            )
            rest = {key: value for key, value in cell.items() if key not in ("v", "src", "conf", "tier")}
            if rest:
                extra[target] = rest
        columns[field] = {"v": values, "e": evidence, **({"extra": extra} if extra else {})}
    return columns


def pack_hal_values(facts: dict[str, Any]) -> dict[str, Any]:
    targets = facts["_meta"]["targets"]
    table = EvidenceTable()
    values = pack_columns(facts["values"], targets, table)
    loose = pack_columns(facts["values_without_offset"], targets, table)
    meta = {key: value for key, value in facts["_meta"].items() if key != "targets"}
    return {
        "meta": meta,
        "evidence": table.rows,
        "targets": targets,
        "values": values,
        "values_without_offset": loose,
    }


def parse_conflicts(text: str) -> dict[str, Any]:
    """The table of CONFLICTS.md as records; the id, subject, values and winner columns stay whole."""
    records = {}
    for line in text.splitlines():
        match = re.match(r"\| (C\d+) \| (.*) \| (.*) \| (.*) \|$", line)
        if match:
            number, subject, values, winner = (part.strip() for part in match.groups())
            records[number] = {"subject": subject, "values": values, "winner": winner}
    if not records:
        raise SystemExit("CONFLICTS.md holds no row of the form '| C01 | subject | values | winner |'")
    return {"meta": {"title": "Where sources disagree, and who wins"}, "conflicts": records}


def pack_registers(folder: Path) -> dict[str, Any]:
    """The register maps of all generations in one file. A bit-field is [name, lowest bit, width, meaning]."""
    maps = {generation: read_json(folder / f"registers_{generation}.json") for generation in GENERATIONS}
    packed = {
        generation: {**facts, "blocks": list(map(_pack_block, facts["blocks"]))} for generation, facts in maps.items()
    }
    registers = {
        f"{generation} {block['name']}": [_pack_register(register) for register in block["registers"]]
        for generation, facts in maps.items()
        for block in facts["blocks"]
    }
    meta = {"title": "Registers of the task descriptors, by generation and block"}
    return {"meta": meta, "generations": packed, "registers": registers}


def _pack_block(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "registers"}


def _pack_register(register: dict[str, Any]) -> dict[str, Any]:
    fields = [[field["name"], field["lsb"], field["width"], field.get("meaning", "")] for field in register["fields"]]
    return {**{key: value for key, value in register.items() if key != "addr"}, "fields": fields}


def pack_programs(folder: Path) -> dict[str, Any]:
    """What is known of containers, of the headers of tasks, and of the numbers in both."""
    meta = {"title": "Compiled programs: the container, the headers of tasks, the codes"}
    parts = {name: read_json(folder / f"{name}.json") for name in ("container", "td_header", "enums")}
    return {"meta": meta, "container": parts["container"], "headers": parts["td_header"], "codes": parts["enums"]}


DEVICE_FIELDS = ("name", "identifier", "class", "soc", "t_number", "year", "memory_gb", "other_names", "note")
"""What is kept of a device. Its engine names are those of its chip; board, day of release and address are not read."""
_FACT_ID = re.compile(r"T\d+")
_T_NUMBER = re.compile(r"t\d{4}")


def pack_devices(facts: dict[str, Any]) -> dict[str, Any]:
    """Devices and chips with their engine names, each name once: with the chip.

    Keys of facts (T26) stand apart from those of sources. Where catalogues give a chip two numbers, "t6051 (CHT) or
    t6050 (ADB)", the first is taken (C85).
    """
    table = EvidenceTable()
    usable = {device["soc"]: device["engine"]["usable_from_core_ml"] for device in facts["devices"]}
    devices = [intern(_pack_device(device), table) for device in facts["devices"]]
    chips = [intern(_pack_chip(chip, usable[chip["soc"]]), table) for chip in facts["chips"]]
    rules = [intern(_split_facts(rule), table) for rule in facts["rules"]]
    meta = {key: facts["_meta"][key] for key in ("title", "fields", "note")}
    return {"meta": meta, "evidence": table.rows, "devices": devices, "chips": chips, "rules": rules}


def _pack_device(device: dict[str, Any]) -> dict[str, Any]:
    kept = {key: device[key] for key in DEVICE_FIELDS if device.get(key) is not None}
    if not kept.get("memory_gb", {}).get("v"):
        kept.pop("memory_gb", None)
    return {**kept, "src": device["src"], "conf": device["conf"]}


def _pack_chip(chip: dict[str, Any], usable: bool) -> dict[str, Any]:
    """The confidence of a chip is that of its engine names; its number and its cores are published."""
    kept = {key: value for key, value in chip.items() if value is not None and key not in ("engine_conf", "t_number")}
    numbers = _T_NUMBER.findall(chip["t_number"].split(" or ")[0])
    return _split_facts({**kept, "t_numbers": numbers, "usable": usable, "conf": chip["engine_conf"]})


def _split_facts(record: dict[str, Any]) -> dict[str, Any]:
    keys = [key for key in record["src"] if _FACT_ID.fullmatch(key)]
    return {**record, "src": [key for key in record["src"] if key not in keys], **({"facts": keys} if keys else {})}


PROVIDER_RULES = ("OG01", "OG02", "OG03", "OG07", "OG08", "OG15")
"""The rules of ONNX Runtime's provider that decide what it takes of a model, and whether the engine runs that."""


def pack_provider(facts: dict[str, Any]) -> dict[str, Any]:
    """Which operators ONNX Runtime's Core ML provider takes in which form. What their constraints say in words is in
    ``formats/onnx/provider.py``; the source of each is a file of that repository."""
    operators = [
        {
            "op": row["op"],
            **({} if row["domain"] == "ai.onnx" else {"domain": row["domain"]}),
            "forms": [form for form in ("neuralnetwork", "mlprogram") if row[form]],
            **({} if row["min_opset"] is None else {"min_opset": row["min_opset"]}),
            **({"trivial": True} if row["trivial"] else {}),
        }
        for row in facts["operators"]
    ]
    rules = [
        {"id": row["id"], "rule": row["rule"], "conf": row["conf"], **({"note": row["note"]} if row["note"] else {})}
        for row in facts["rules"]
        if row["id"] in PROVIDER_RULES
    ]
    meta = {key: facts["_meta"][key] for key in ("title", "read_from")}
    return {"meta": meta, "operators": operators, "rules": rules}


def dump(document: dict[str, Any]) -> str:
    """JSON with one record a line: compact to load, readable as a diff."""
    lines = []
    for key, value in document.items():
        head = json.dumps(key) + ":"
        if isinstance(value, dict) and value and key != "meta":
            rows = [f"{json.dumps(k)}:{compact(v)}" for k, v in value.items()]
            lines.append(head + "{\n" + ",\n".join(rows) + "}")
        elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
            lines.append(head + "[\n" + ",\n".join(compact(item) for item in value) + "]")
        else:
            lines.append(head + compact(value))
    return "{" + ",\n".join(lines) + "}\n"


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def import_folder(folder: Path) -> list[str]:
    written = []

    def write(name: str, document: dict[str, Any]) -> None:
        (DATA / f"{name}.json").write_text(dump(document), encoding="utf-8")
        written.append(name)

    for topic in (*TOPICS, *SECOND_TOPICS, *THIRD_TOPICS):
        write(topic, pack_topic(read_topic(folder, topic)))
    write("hal_values", pack_hal_values(read_json(folder / "hal_values.json")))
    write("registers", pack_registers(folder / PROGRAM))
    write("programs", pack_programs(folder / PROGRAM))
    write("devices", pack_devices(read_json(folder / THIRD / "devices.json")))
    write("ort_coreml", pack_provider(read_json(folder / THIRD / "ort_coreml.json")))
    write("conflicts", parse_conflicts(read_conflicts(folder)))
    write("sources", {"meta": {"title": "What each source key stands for"}, "sources": read_sources(folder)})
    return written


def seal() -> int:
    """Record the checksum of every data file; the loader refuses a file that differs."""
    sums = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(DATA.glob("*.json"))
        if path.name != "manifest.json"
    }
    (DATA / "manifest.json").write_text(dump({"sha256": sums}), encoding="utf-8")
    return len(sums)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Import the published facts and seal the data files.")
    parser.add_argument("folder", nargs="?", type=Path, help="folder that holds targets.json, ops.json, ...")
    parser.add_argument("--seal", action="store_true", help="only rewrite the checksums")
    arguments = parser.parse_args(argv)
    if arguments.folder is None and not arguments.seal:
        parser.error("give the facts folder, or --seal")
    if arguments.folder is not None:
        if not (arguments.folder / "targets.json").is_file():
            parser.error(f"{arguments.folder} holds no targets.json")
        DATA.mkdir(parents=True, exist_ok=True)
        print(f"imported {', '.join(import_folder(arguments.folder))}")
    print(f"sealed {seal()} data files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
