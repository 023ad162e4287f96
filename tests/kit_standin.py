"""A stand-in for a Mac: results as the runner would write them if one hypothesis of each experiment held."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib

import numpy as np

from aneforge.chips import store
from aneforge.chips.devices import all_devices, chip_records
from aneforge.chips.suppose import supposing
from aneforge.codegen.emission import emit
from aneforge.reports.kit import predict
from aneforge.reports.kit.experiments import COPIES, HOST, NAME, PLACEMENT, PROGRAM, TIMES, WORDS, experiments
from aneforge.reports.kit.programs import reading_of
from aneforge.reports.kit.runner.run import MOST_WORDS, seal
from aneforge.study.model import build
from aneforge.version import __version__

ENGINE, CPU = "MLNeuralEngineComputeDevice", "MLCPUComputeDevice"


def results(chip, hypotheses=None, only=None, seed=0, noise=0.01, os="macOS 26.1", programs=True):
    """A whole file. ``hypotheses`` gives the place of the hypothesis that holds, by experiment; 0 elsewhere."""
    rng = np.random.default_rng(seed)
    rows = []
    for entry in experiments().values():
        if only is None or entry.id in only:
            hypothesis = entry.hypotheses[(hypotheses or {}).get(entry.id, 0)]
            rows += _rows(entry, hypothesis, predict.KitSetting(chip, os), rng, noise, programs)
    setting = predict.KitSetting(chip, os)
    names = [entry for entry in experiments().values() if entry.kind == NAME and entry.asks_of(chip)]
    name = names[0] if names else next(entry for entry in experiments().values() if entry.kind == NAME)
    engine = predict._named(name, {}, name.hypotheses[(hypotheses or {}).get(name.id, 0)], setting)
    model = next((device.identifier for device in all_devices() if device.chip == chip and device.kind == "mac"), "")
    assert chip in chip_records()
    document = {
        "schema": 1,
        "kind": "aneforge kit results",
        "kit": {"version": __version__, "seed": 0, "digest": "0" * 64},
        "machine": {
            "chip": chip,
            "model": model,
            "os": os,
            "build": "25B78",
            "memory_gb": 16,
            "engine_names": [engine],
            "power": "mains",
            "low_power": False,
            "thermal": "nominal",
        },
        "runner": {"name": "run.swift", "scope": "coreml_call", "library": "Core ML"},
        "results": rows,
        "took_s": 300.0,
    }
    return sealed(document)


def sealed(document):
    return {**document, "digest": seal(document)}


def _rows(entry, hypothesis, setting, rng, noise, programs):
    prediction = predict._prediction(entry, hypothesis, setting)
    if not entry.asks_of(setting.chip):
        return
    for number, case in enumerate(entry.cases):
        row = {"id": entry.id, "case": number, "asked": entry.digest(), "status": "ran", "message": ""}
        said = prediction.cases[number] if prediction.cases else None
        if said is None:
            yield {**row, "status": "failed", "message": prediction.refusal[:300]}
            continue
        if entry.kind == PROGRAM:
            yield _program_row(row, entry, case, hypothesis, said, programs)
            continue
        if entry.kind == NAME:
            yield row
            continue
        us = 800.0
        outputs, plan = {}, [_step(name, True) for name in entry.outputs(case)]
        if entry.kind == WORDS:
            nodes = entry.graph_of(case).outputs
            outputs = {
                name: _words(words, node.shape) for (name, words), node in zip(said.items(), nodes, strict=True)
            }
        elif entry.kind == PLACEMENT:
            plan = [_step(name, taken) for name, taken in said.items()]
        elif entry.kind == TIMES:
            us = 10 + 1.05 * said
        elif entry.kind == COPIES:
            size = entry.inputs(case)["x"].size
            engine_us = build(entry.graph_of(case), setting.target).estimate("coreml_call").engine_us
            us = 90 + 4 * size / (said * 1e3) + engine_us
        elif entry.kind == HOST:
            low, high = said
            us = (low * high) ** 0.5 if low and np.isfinite(high) else 2 * low if low else high / 2
        times = [int(1e3 * us * factor) for factor in 1 + noise * np.abs(rng.standard_normal(30))]
        yield {**row, "plan": plan, "times_ns": times, "outputs": outputs, "stable": True, "thermal": "nominal"}


def _step(name, taken):
    supported = [CPU, ENGINE] if taken else [CPU]
    return {
        "operatorName": "ios18.relu",
        "outputs": [{"name": name}],
        "preferredComputeDevice": ENGINE if taken else CPU,
        "supportedComputeDevices": supported,
    }


def _words(words, shape):
    raw = words.astype("<u2").tobytes()
    shown = words[:MOST_WORDS].astype(">u2").tobytes().hex()
    return {"shape": list(shape), "sha256": hashlib.sha256(raw).hexdigest(), "words": shown}


def _program_row(row, entry, case, hypothesis, said, programs):
    """A container of ours without the section that says so; none of the vendor's compiler is at hand."""
    if not programs:
        return {**row, "status": "skipped"}
    if said == {"compiles": False}:
        return {**row, "status": "failed", "message": "CalledProcessError"}
    with supposing(hypothesis.suppose):
        graph = entry.graph_of(case)
        if entry.watch == ("compiles",):
            graph = experiments()["X61"].graph_of({"op": "relu"})
        container = emit(build(graph, case["target"]).program)
    if reading_of(container, entry.watch) != said:  # another program that reads so
        other = {"MAC": "X61", "planar": "X60"}[said["engines"][0]]
        op = {"X61": "relu", "X60": "max_pool"}[other]
        container = emit(build(experiments()[other].graph_of({"op": op}), case["target"]).program)
    content = container.to_bytes().replace(b"AFDEBUG\0", b"VENDOR\0\0")
    return {**row, "program": base64.b64encode(zlib.compress(content)).decode()}


def checkout(place):
    """The data of a checkout, for commands that change it."""
    folder = place / "aneforge" / "chips" / "data"
    folder.mkdir(parents=True)
    for name in ("choices.json", "manifest.json"):
        (folder / name).write_bytes((store.DATA / name).read_bytes())
    return place


def written(document, path):
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
