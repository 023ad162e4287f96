"""What the public package of the same name estimates: ``python bench/peer_times.py FACTS PYTHON``.

It estimates the measured layers. PYTHON is that of an environment where it is installed (``make bench-peer`` makes
one, ``.venv-peer``). The layers are written with the functions that both packages have; a row whose layers do not
follow one another as a graph is left out. The estimates are kept by row in ``bench/peer_times.json``, from which
``bench/cost.py`` reads them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parent / "peer_times.json"
MOST_LAYERS = 256


def graph_of(af: Any, layers: list[dict[str, Any]]) -> Any:
    """The layers one behind the other; None where one does not take what the one before gives."""
    import numpy as np

    value = None
    for layer in layers:
        for _ in range(int(layer.get("repeat") or 1)):
            value = _next(af, np, layer, value)
            if value is None:
                return None
    return value


def _next(af: Any, np: Any, layer: dict[str, Any], x: Any) -> Any:
    def source(shape: list[int]) -> Any:
        if x is None:
            return af.input(tuple(shape))
        return x if tuple(x.shape) == tuple(shape) else None

    op = layer["op"]
    if op == "conv":
        size = [layer[key] for key in ("n", "cin", "h", "w")]
        value, groups = source(size), int(layer.get("groups") or 1)
        kernel = np.full((layer["cout"], layer["cin"] // groups, layer["kh"], layer["kw"]), 0.01, np.float16)
        stride, pad = layer.get("stride") or 1, layer.get("pad") or 0
        pad = (pad[0], pad[0], pad[-1], pad[-1]) if isinstance(pad, list) else pad
        stride = stride[0] if isinstance(stride, list) else stride
        return None if value is None else af.conv(value, kernel, stride=stride, pad=pad, groups=groups)
    if op == "linear":
        value = source([layer["m"], layer["k"]])
        return None if value is None else value.linear(np.full((layer["n"], layer["k"]), 0.01, np.float16))
    if op == "bmm" and x is None:
        left = af.input((layer["b"], layer["m"], layer["k"]))
        return left @ af.input((layer["b"], layer["k"], layer["n"]))
    if op == "softmax":
        value = source(layer["shape"])
        return None if value is None else value.softmax(-1)
    if op in ("layer_norm", "rms_norm"):
        value, width = source(layer["shape"]), layer["shape"][-1]
        if value is None:
            return None
        gain = np.ones(width, np.float16)
        return value.layer_norm(gain, gain * 0) if op == "layer_norm" else value.rms_norm(gain)
    if op == "ew":
        value = source(layer["shape"])
        if value is None:
            return None
        if int(layer.get("n_in") or 1) == 2:
            return value + af.input(tuple(layer["shape"]))
        return getattr(value, layer.get("fn") or "relu", value.relu)()
    return None


def answer() -> None:
    """In the other package's Python: rows come in as JSON, estimates go out by id."""
    import aneforge as af

    times: dict[str, float] = {}
    for row in json.load(sys.stdin):
        try:
            graph = graph_of(af, row["layers"])
            us = None if graph is None else float(af.estimate(graph, int8=row["int8"], target=row["target"]))
        except Exception:  # whatever it raises, it has no estimate of this row
            us = None
        if us:
            times[row["id"]] = round(us, 3)
    json.dump(times, sys.stdout)


def main() -> int:
    if sys.argv[1:] == ["--answer"]:
        answer()
        return 0
    if len(sys.argv) != 3:
        print("say: python bench/peer_times.py FACTS PYTHON", file=sys.stderr)
        return 2
    import cost_samples as samples

    asked = [
        {
            "id": row.id,
            "target": row.target,
            "layers": row.row["layers"],
            "int8": str(row.row.get("weight_enc") or "").startswith("int8"),
        }
        for row in samples.layers(Path(sys.argv[1]))
        if row.row.get("layers") and sum(int(layer.get("repeat") or 1) for layer in row.row["layers"]) <= MOST_LAYERS
    ]
    done = subprocess.run(  # noqa: S603 - this repository's own script
        [sys.argv[2], __file__, "--answer"],
        check=True,
        capture_output=True,
        text=True,
        input=json.dumps(asked),
        cwd="/",
    )
    times = json.loads(done.stdout)
    KEPT.write_text("{" + ",\n".join(f'"{key}":{us}' for key, us in sorted(times.items())) + "}\n", encoding="utf-8")
    print(f"{len(times)} of {len(asked)} rows have an estimate of the other package")
    return 0


if __name__ == "__main__":
    sys.exit(main())
