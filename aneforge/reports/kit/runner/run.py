#!/usr/bin/env python3
"""Run the experiments of this folder on a Mac, and write results.json.

It needs Python's standard library. Where coremltools is installed it calls Core ML itself; otherwise it hands over to
run.swift beside it, which needs nothing but the system's Swift. Nothing is sent anywhere.

    python3 run.py                   all experiments, about as long as README.md says
    python3 run.py X01 X51           these only
    python3 run.py --out mine.json   another name for the results
    python3 run.py --compiler 'TOOL {plist} {target} {out}'
                                     a tool of yours that compiles a netplist to a .hwx file, for programs/
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from typing import Any, Dict  # the system's Python may be 3.9

Record = Dict[str, Any]
HERE = pathlib.Path(__file__).resolve().parent
WARM_UP, SHORT, LONG = 2, 3, 30  # calls before, calls of an experiment about numbers, calls of one about times
MOST_WORDS = 4096  # longer results are written as their hash and their first words


def asked(command: list[str]) -> str:
    """What a command of the system prints; empty where it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def thermal_state() -> str:
    """nominal, or how much the system has slowed down."""
    found = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", asked(["pmset", "-g", "therm"]))
    return "nominal" if found is None or found[1] == "100" else f"limited to {found[1]} %"


def machine() -> Record:
    """The machine without anything that names its owner: chip, model, system, engine, power."""
    registry = "".join(asked(["ioreg", "-l", "-w0", "-r", "-c", name]) for name in ("H11ANEIn", "H1xANELoadBalancer"))
    names = re.findall(r'ArchitectureTypeStr"?\s*=\s*"?(h\d+[a-z]?)', registry)
    memory = asked(["sysctl", "-n", "hw.memsize"])
    battery = asked(["pmset", "-g", "batt"])
    return {
        "chip": asked(["sysctl", "-n", "machdep.cpu.brand_string"]).replace("Apple ", "") or platform.machine(),
        "model": asked(["sysctl", "-n", "hw.model"]),
        "os": f"macOS {asked(['sw_vers', '-productVersion'])}",
        "build": asked(["sw_vers", "-buildVersion"]),
        "memory_gb": int(memory) // 2**30 if memory.isdigit() else 0,
        "engine_names": sorted(set(names)),
        "power": "battery" if "Battery Power" in battery else "mains",
        "low_power": bool(re.search(r"lowpowermode\s+1", asked(["pmset", "-g"]))),
        "thermal": thermal_state(),
    }


def checked(manifest: Record) -> None:
    """Refuse a kit of which a file is missing or not as it was written."""
    for name, digest in manifest["files"].items():
        place = HERE / name
        if not place.is_file() or hashlib.sha256(place.read_bytes()).hexdigest() != digest:
            sys.exit(f"{name}: not as the kit was written; get the folder again")


def unpacked(name: str, folder: str) -> pathlib.Path:
    """A copy of a package or a netplist in a folder that is deleted at the end: coremltools changes what it loads."""
    if name.endswith(".zip"):
        with zipfile.ZipFile(HERE / name) as archive:
            archive.extractall(folder)
        return pathlib.Path(folder) / pathlib.Path(name).stem
    return pathlib.Path(shutil.copytree(HERE / name, pathlib.Path(folder) / pathlib.Path(name).name))


def inputs_of(case: Record, numpy: Any) -> Record:
    """The input arrays of one case."""
    arrays = {}
    for name, port in case["inputs"].items():
        if "file" in port:
            arrays[name] = numpy.fromfile(HERE / port["file"], "<f2").reshape(port["shape"])
        else:
            arrays[name] = numpy.full(port["shape"], port["fill"], port.get("type", "<f2"))
    return arrays


def plan_of(tools: Any, package: pathlib.Path, units: Any) -> list[Record]:
    """The device of every operation, in the words of Core ML's own interface."""
    from coremltools.models.compute_plan import MLComputePlan

    compiled = tools.models.utils.compile_model(str(package))
    plan = MLComputePlan.load_from_path(str(compiled), compute_units=units)
    rows = []
    program: Any = plan.model_structure.program
    for operation in program.functions["main"].block.operations:
        usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
        rows.append(
            {
                "operatorName": operation.operator_name,
                "outputs": [{"name": output.name} for output in operation.outputs],
                "preferredComputeDevice": usage and type(usage.preferred_compute_device).__name__,
                "supportedComputeDevices": [type(device).__name__ for device in usage.supported_compute_devices]
                if usage
                else [],
            }
        )
    return rows


def words_of(array: Any, numpy: Any) -> Record:
    """A result as fp16 words: its shape, its hash, and all words where they are few."""
    halves = numpy.ascontiguousarray(numpy.asarray(array, "<f2"))
    words = halves.view("<u2").copy()
    words[numpy.isnan(halves)] = 0x7E00
    raw, kept = words.tobytes(), words.reshape(-1)[:MOST_WORDS]
    return {
        "shape": list(halves.shape),
        "sha256": hashlib.sha256(raw).hexdigest(),
        "words": kept.astype(">u2").tobytes().hex(),
    }


def run_case(case: Record, tools: Any, folder: str) -> Record:
    """Load one package, read its plan, call it again and again, and keep results and times."""
    import numpy

    units = {"cpuOnly": tools.ComputeUnit.CPU_ONLY, "cpuAndNeuralEngine": tools.ComputeUnit.CPU_AND_NE}[case["units"]]
    package = unpacked(case["package"], folder)
    rows = plan_of(tools, package, units)
    model = tools.models.MLModel(str(package), compute_units=units)
    arrays, times, results = inputs_of(case, numpy), [], []
    calls = LONG if case["timed"] else SHORT
    for call in range(WARM_UP + calls):
        begin = time.perf_counter_ns()
        outputs = model.predict(arrays)
        taken = time.perf_counter_ns() - begin
        if call >= WARM_UP:
            times.append(taken)
            if not case["timed"] or call == WARM_UP:
                results.append({name: words_of(outputs[name], numpy) for name in case["outputs"]})
    return {
        "plan": rows,
        "times_ns": times,
        "outputs": results[0],
        "stable": all(one == results[0] for one in results),
    }


def compile_case(case: Record, command: str, folder: str) -> Record:
    """Let a tool of the person's own compile a netplist."""
    out = pathlib.Path(folder) / f"{case['part']}.hwx"
    netplist = unpacked(case["netplist"], folder)
    netplist = netplist if netplist.suffix == ".plist" else next(netplist.glob("*.plist"))
    words = [part.format(plist=netplist, target=case["target"], out=out) for part in shlex.split(command)]
    subprocess.run(words, capture_output=True, timeout=60, check=True)
    return {"program": base64.b64encode(zlib.compress(out.read_bytes())).decode()}


def result_of(case: Record, tools: Any, compiler: str, folder: str) -> Record:
    """What one case gave, or why it gave nothing."""
    row = {name: case[name] for name in ("id", "case", "asked")}
    row.update({"status": "ran", "message": "", "thermal": thermal_state()})
    try:
        if "package" in case:
            return {**row, **run_case(case, tools, folder)}
        if "netplist" in case:
            return {**row, **compile_case(case, compiler, folder)} if compiler else {**row, "status": "skipped"}
        return row
    except Exception as error:  # the next experiment must still run
        return {**row, "status": "failed", "message": f"{type(error).__name__}: {error}"[:300]}


def seal(document: Record) -> str:
    """A digest of what was measured, so that a file that was cut or changed on its way is noticed."""
    machine = document["machine"]
    lines = [
        document["kit"]["digest"],
        machine["chip"],
        machine["model"],
        machine["os"],
        machine["build"],
        *machine["engine_names"],
    ]
    for row in document["results"]:
        lines.append(f"{row['id']} {row['case']} {row['asked']} {row['status']}")
        lines += [f"{name} {result['sha256']}" for name, result in sorted(row.get("outputs", {}).items())]
        lines += [
            f"{(step['outputs'] or [{'name': ''}])[0]['name']} {step['preferredComputeDevice']}"
            for step in row.get("plan", [])
        ]
        lines.append(" ".join(map(str, row.get("times_ns", []))))
        lines.append(hashlib.sha256(row.get("program", "").encode()).hexdigest())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the experiments of this folder on a Mac.")
    parser.add_argument("experiments", nargs="*", help="only these, such as X01")
    parser.add_argument("--out", default="results.json", help="where the results go (default: results.json)")
    parser.add_argument(
        "--compiler", default="", help="a command that compiles a netplist: 'TOOL {plist} {target} {out}'"
    )
    options = parser.parse_args()
    if sys.platform != "darwin":
        sys.exit("run.py: it needs macOS; copy this folder to a Mac")
    try:
        import coremltools as tools
    except ImportError:
        sys.exit(subprocess.run(["swift", str(HERE / "run.swift"), *sys.argv[1:]], check=False).returncode)
    manifest = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
    checked(manifest)
    wanted = [case for case in manifest["cases"] if not options.experiments or case["id"] in options.experiments]
    document = {
        "schema": 1,
        "kind": "aneforge kit results",
        "kit": manifest["kit"],
        "machine": machine(),
        "results": [],
    }
    document["runner"] = {"name": "run.py", "scope": "host_call", "library": f"coremltools {tools.__version__}"}
    begin = time.time()
    for number, case in enumerate(wanted, 1):
        print(f"{number} of {len(wanted)}: {case['part']}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            document["results"].append(result_of(case, tools, options.compiler, folder))
    document["took_s"] = round(time.time() - begin, 1)
    document["digest"] = seal(document)
    pathlib.Path(options.out).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    ran = sum(row["status"] == "ran" for row in document["results"])
    print(
        f"{options.out}: {ran} of {len(wanted)} ran in {document['took_s']} s. Read it, then send it to whom you like."
    )


if __name__ == "__main__":
    main()
