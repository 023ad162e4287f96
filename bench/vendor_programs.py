"""How many programs of the vendor's compiler come out word for word, by generation and kind.

    python bench/vendor_programs.py FOLDER [--list] [--misses ID] [--only TEXT] [--json] [--refresh FILE] [--left-out]

FOLDER holds records of the third collection, or is one file of them, such as tests/evidence/vendor_programs.json.gz: a
network, and the words of every task that the vendor's compiler wrote
for it. For each record the network is built, compiled for the record's target, and our words are compared with the
record's. ``--list`` names every miss with its reason, ``--misses ID`` shows the words of one record that differ, and
``--refresh aneforge/chips/data/task_words.json`` writes down what is proven (then ``tools/import_facts.py --seal``).
``--left-out`` judges each record without the tabulated values that only it, or its shape, is evidence of
(``bench/vendor_left_out.py``).
"""

from __future__ import annotations

import gzip
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import aneforge as af
from aneforge.codegen.container import Container
from aneforge.codegen.emission import emit
from aneforge.codegen.tasks import Task
from aneforge.codegen.verdicts import digest
from aneforge.errors import AneforgeError

Record = dict[str, Any]
_HALF = 0.5  # what the vendor's projects fill their weights with; words do not depend on it


def records_of(folder: Path) -> list[Record]:
    """Every record of the files in a folder, in the order of their names, or of one file, packed or not."""
    if folder.is_file():
        data = folder.read_bytes()
        return json.loads(gzip.decompress(data) if folder.suffix == ".gz" else data)
    return [record for file in sorted(folder.glob("h*.json")) for record in json.loads(file.read_text("utf-8"))]


# Networks of records.


def graph_of(network: dict[str, Any], target: str = "") -> list[Any]:
    """The outputs of the graph that a record's network describes. Records of h16g do not name their tensors; ours have
    names in the order of their base registers."""
    if target == "h16g" and network.get("weight") == "runtime":
        network = {**network, "names": {"inputs": ["a", "b"], "output": "c"}}
    elif (
        target == "h16g" and network.get("second", [0])[-1:] == [1]
        if isinstance(network.get("second"), list)
        else False
    ):
        network = {**network, "names": {"inputs": ["b", "a"], "output": "c"}}
    built = _BUILDERS.get(network["op"], _unary)(network)
    if "then" in network:
        built = _behind(built, network["then"])
    for step in network.get("behind", ()):
        if step != "bias":
            word, *number = step.split()
            built = _behind(built, {"op": word, **({"second": float(number[0])} if number else {})})
    default = "product" if network["op"] == "matmul" else "y"
    return [built.named(network.get("names", {}).get("output", default))]


def _inputs(network: dict[str, Any], *names: str) -> Sequence[str]:
    return network.get("names", {}).get("inputs", names)


_FILE_HEADER = np.zeros(64, np.float16)
_FILE_HEADER[[0, 2, 32, 33, 34, 36, 40]] = _HALF
"""Weights of the published convolutions begin with the head of their file, as the compiler read it: what of it is zero
matters for kernels that leave zeros out."""


def _filled(*shape: int) -> np.ndarray:
    return np.full(shape, _HALF, np.float16)


def _conv(network: dict[str, Any]) -> Any:
    if network.get("activations") == "int8":
        raise AneforgeError("a chain in int8 has no published words that we write")
    rows, columns = _pair(network.get("size", [network.get("rows"), network.get("columns")]))
    height, width = _pair(network["kernel"])
    x = af.input((1, network["cin"], rows, columns), name=_inputs(network, "x")[0])
    for _ in range(network.get("depth", 1)):
        kernel = _filled(network["cout"], network["cin"] // network["groups"], height, width)
        if network["stride"] > 1:
            kernel.reshape(-1)[: len(_FILE_HEADER)] = _FILE_HEADER
        bias = _filled(network["cout"]) if network.get("bias") else None
        pads = network.get("pad", "valid")
        if pads == "same":
            pads = [(height - 1) // 2, height // 2, (width - 1) // 2, width // 2]
        pads = (0, 0, 0, 0) if pads == "valid" else pads
        step = network["stride"]
        if step > 1:  # the same padding of a step: what makes outputs of input / step, the smaller part before
            pads = [_same(extent, size, step) for extent, size in ((rows, height), (columns, width))]
            pads = [part for pair in pads for part in pair] if network["pad"] == "same" else (0, 0, 0, 0)
        pads = tuple(pads)
        x = af.conv(x, kernel, bias=bias, stride=step, groups=network["groups"], pad=pads)
        x = _behind(x, network["then"]) if network["op"] == "conv_chain" and "then" in network else x
    return x


def _same(extent: int, size: int, step: int) -> tuple[int, int]:
    short = max(0, (-(-extent // step) - 1) * step + size - extent)
    return short // 2, short - short // 2


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _matmul(network: dict[str, Any]) -> Any:
    m, k, n, lead = network["m"], network["k"], network["n"], ()
    if "batch" in network:
        lead = (1, network["batch"]) if network.get("rank") == 4 else (network["batch"],)
    turned = network.get("transpose_x"), network.get("transpose_y")
    left = af.input((*lead, *((k, m) if turned[0] else (m, k))), name=_inputs(network, "x", "w")[0])
    left = left.mT if turned[0] else left
    if network["weight"] == "constant":
        if network.get("bias"):
            number = 0.25
            if "bias_value_fp16" in network:
                number = float(np.array(int(network["bias_value_fp16"], 16), np.uint16).view(np.float16))
            bias = np.full(n, number, np.float16)
            if network["bias"] == "channel":
                bias = (np.arange(n) % 7 * 0.25 + 0.25).astype(np.float16)
            return left.linear(_filled(n, k), bias)
        return af.matmul(left, _filled(k, n))
    right = af.input((*lead, *((n, k) if turned[1] else (k, n))), name=_inputs(network, "x", "w")[1])
    return af.matmul(left, right.mT if turned[1] else right)


_PLANAR: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "maximum": af.maximum,
    "minimum": af.minimum,
    "real_div": lambda a, b: a / b,
}


def _binary(network: dict[str, Any]) -> Any:
    names = _inputs(network, "x", "z")
    x, second = af.input(tuple(network["shape"]), name=names[0]), network["second"]
    if network["operand"] == "scalar":
        other = second
    elif network["operand"] == "constant":
        value = network.get("value", _HALF)
        other = af.const(np.full(second, value, np.float16))
    else:
        other = af.input(tuple(second), name=names[1])
    return _PLANAR[network["op"]](x, other)


def _unary(network: dict[str, Any]) -> Any:
    x = af.input(tuple(network["shape"]), name=_inputs(network, "x")[0])
    return _behind(x, network)


def _behind(x: Any, step: dict[str, Any]) -> Any:
    op = step["op"]
    if op in _PLANAR:
        return _PLANAR[op](x, step["second"])
    if op == "gelu":
        if step.get("approximate") == "sigmoid":
            return x * (x * 1.702).sigmoid()
        return x.gelu()
    if op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min"):
        axes = tuple(step["axes"])
        kind = {"reduce_sum": x.sum, "reduce_mean": x.mean, "reduce_max": x.amax, "reduce_min": x.amin}[op]
        reduced = kind(axes)
        return reduced if step.get("keep_dims", True) else reduced.reshape(1, -1)
    if op == "softmax":
        return x.softmax(step["axis"])
    if op == "layer_norm":
        return _normalised(x, tuple(step["axes"]), step["epsilon"])
    if op == "transpose":
        return x.transpose(tuple(step["perm"]))
    if op == "slice":
        return x.slice_by_size(tuple(step["begin"]), tuple(step["size"]))
    if op == "tile":
        return x.tile(tuple(step["reps"]))
    if op == "reciprocal":
        return x.inverse()
    if op in ("space_to_depth", "depth_to_space"):
        return getattr(af, op)(x, step["block"])
    if op == "leaky_relu":
        return x.leaky_relu(0.01)
    return getattr(x, op)()


def _normalised(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """A layer norm without scale and shift."""
    channels = x.shape[1]
    if axes == (1, 2, 3):
        return x.group_norm(np.ones(channels, np.float16), np.zeros(channels, np.float16), 1, eps)
    if axes == (1,):
        return x.channel_layer_norm(np.ones(channels, np.float16), np.zeros(channels, np.float16), eps)
    flat = x if axes == (x.ndim - 1,) else x.reshape(1, -1)
    columns = flat.shape[-1]
    return flat.layer_norm(np.ones(columns, np.float16), np.zeros(columns, np.float16), eps).reshape(*x.shape)


def _ffn(network: dict[str, Any]) -> Any:
    x = af.input((network["m"], network["k"]), name=_inputs(network, "x")[0])
    hidden = x.linear(_filled(network["hidden"], network["k"])).gelu()
    return hidden.linear(_filled(network["k"], network["hidden"]))


def _residual(network: dict[str, Any]) -> Any:
    x = af.input((network["m"], network["k"]), name=_inputs(network, "x")[0])
    return x + x.linear(_filled(network["n"], network["k"]))


def _residual_relu(network: dict[str, Any]) -> Any:
    x = af.input(tuple(network["shape"]), name=_inputs(network, "x")[0])
    return x + x.relu()


def _attention(network: dict[str, Any]) -> Any:
    shape = (1, network["sequence"], network["head_dim"])
    q, k, v = (af.input(shape, name=name) for name in _inputs(network, "q", "k", "v"))
    return af.matmul((af.matmul(q, k.mT) * network["scale"]).softmax(-1), v)


_BUILDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "conv": _conv,
    "conv_chain": _conv,
    "matmul": _matmul,
    **dict.fromkeys(_PLANAR, _binary),
    "ffn": _ffn,
    "residual_matmul": _residual,
    "residual_relu": _residual_relu,
    "attention": _attention,
}


# Words against words.


@dataclass(frozen=True)
class Score:
    """One record: how many of its words we write, and what differs."""

    record: Record
    words: int
    equal: int
    reason: str
    """Empty where every word is equal."""
    differences: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """The kinds of work that our program has."""

    @property
    def is_exact(self) -> bool:
        return not self.reason

    @property
    def has_form(self) -> bool:
        """Whether we write as many tasks as the vendor, and none as text."""
        return self.is_exact or bool(self.differences)


def compiled(record: Record) -> Container:
    """Our container of a record's network."""
    outputs = graph_of(record["network"], record["target"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a call of one layer is mostly dispatch
        return _emitted(outputs, record["target"])


def _emitted(outputs: list[Any], target: str) -> Container:
    return emit(af.compile(outputs, target=target, _check_precision=False).program)


def score(record: Record) -> Score:
    expected = [[int(word, 16) for word in task["words"]] for task in record["tasks"]]
    total = sum(map(len, expected))
    try:
        container = compiled(record)
        if container.record is not None and container.record.not_expressed:
            task = container.record.not_expressed[0]
            return Score(record, total, 0, f"{task.form}: {task.reason}")
        ours = container.tasks
    except (AneforgeError, AttributeError, KeyError, ValueError, TypeError) as error:
        return Score(record, total, 0, f"{type(error).__name__}: {error}")
    if record.get("partial"):
        ours = ours[: len(expected)]
    if len(ours) != len(expected):
        return Score(record, total, 0, f"{len(ours)} tasks, the vendor has {len(expected)}")
    equal, found = 0, []
    for number, (task, own, words) in enumerate(zip(record["tasks"], ours, expected, strict=True)):
        same, different = compare(task, own, words, container.generation)
        equal += same
        found += [f"task {number} {text}" for text in different]
    reason = "" if equal == total and not found else f"{total - equal} words differ"
    kinds = tuple(task.form for task in container.record.tasks) if container.record is not None else ()
    return Score(record, total, equal, reason, tuple(found), kinds)


def compare(task: dict[str, Any], own: Task, words: list[int], generation: str) -> tuple[int, list[str]]:
    """How many words of a published task ours has at the same register, and the ones that differ."""
    if own.words == words:
        return len(words), []
    header = task["header_words"]
    theirs = Task(generation, words[:header], words[header:])
    found = []
    equal = 0
    for place in range(max(header, len(own.header_words))):
        one = words[place] if place < header else None
        other = own.header_words[place] if place < len(own.header_words) else None
        if one == other:
            equal += 1
        else:
            found.append(f"header {place}: {_hex(one)} theirs, {_hex(other)} ours")
    left, right = _writes(theirs), _writes(own)
    for key in dict.fromkeys((*left, *right)):
        if left.get(key) == right.get(key):
            equal += 1
        else:
            found.append(f"{key[1]} {key[0]:#07x}: {_hex(left.get(key))} theirs, {_hex(right.get(key))} ours")
    heads = [_heads(one) for one in (theirs, own)]
    common = Counter(heads[0]) & Counter(heads[1])
    equal += sum(common.values())
    if heads[0] != heads[1]:
        own_only = [(Counter(a) - Counter(b)).elements() for a, b in (heads, heads[::-1])]
        more = ["+".join(f"{word:08x}" for word in words_of_one) for words_of_one in own_only]
        found.append(f"commands: {more[0] or 'none'} theirs, {more[1] or 'none'} ours")
    return min(equal, len(words)), found or ["the order of commands differs"]


def _writes(task: Task) -> dict[tuple[int, str, int], int]:
    seen: Counter[int] = Counter()
    found = {}
    for address, value, register in task.written():
        name = "?" if register is None else f"{register.block}.{register.label}"
        found[address, name, seen[address]] = value
        seen[address] += 1
    return found


def _heads(task: Task) -> list[int]:
    heads, place = [], 0
    body = task.words[len(task.header_words) :]
    for command in task.commands:
        heads.append(body[place])
        place += 1 + len(command.values)
    return heads


def _hex(value: int | None) -> str:
    return "nothing" if value is None else f"{value:#x}"


# What the package knows of them: the table of task words.


def refresh(file: Path, records: list[Record], scores: list[Score]) -> None:
    """Writes which kinds of work come out word for word, and the digest of every published task, into the table."""
    document = json.loads(file.read_text("utf-8"))
    proven: dict[str, set[str]] = {}
    digests: dict[str, dict[str, None]] = {}
    for entry in scores:
        if entry.is_exact:
            parts = [part for kind in entry.kinds for part in kind.replace(" with ", ", ").split(", ")]
            proven.setdefault(entry.record["generation"], set()).update(parts)
    for record in records:
        for task in record["tasks"]:
            words, header = [int(word, 16) for word in task["words"]], task["header_words"]
            known = Task(record["generation"], words[:header], words[header:])
            digests.setdefault(record["generation"], {})[digest(known)] = None
    document["proven"] = {name: sorted(proven.get(name, ())) for name in document["generations"]}
    document["digests"] = {name: " ".join(digests.get(name, ())) for name in document["generations"]}
    parts = [f'"meta":{json.dumps(document["meta"], separators=(",", ":"))}']
    parts += [f'"{key}":{json.dumps(document[key])}' for key in ("generations", "rates")]
    for key in ("proven", "digests"):
        rows = ",\n".join(f'"{name}":{json.dumps(value)}' for name, value in document[key].items())
        parts.append(f'"{key}":{{\n{rows}}}')
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in document["words"])
    parts.append(f'"words":[\n{rows}\n]')
    file.write_text("{" + ",\n".join(parts) + "}\n", "utf-8")


# What is printed.


def table(scores: list[Score], of: Callable[[Score], str]) -> Iterator[str]:
    groups: dict[str, list[Score]] = {}
    for entry in scores:
        groups.setdefault(of(entry), []).append(entry)
    for name in sorted(groups):
        group = groups[name]
        exact = sum(entry.is_exact for entry in group)
        words, equal = sum(entry.words for entry in group), sum(entry.equal for entry in group)
        rest = [entry for entry in group if not entry.is_exact and entry.has_form]
        share = f"{sum(e.equal for e in rest) / sum(e.words for e in rest):7.1%}" if rest else "      -"
        counts = f"{len(group):4} records {exact:4} exact {equal / words:7.1%} of words"
        yield f"{name:24} {counts}, misses with a form {share}"


def show_left_out(records: list[Record]) -> None:
    """Every record judged without the values that only it, or its shape, is evidence of."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import vendor_left_out

    rows = vendor_left_out.left_out(records, score)
    for of in (lambda record: record["target"], lambda record: record["kind"], lambda record: "all"):
        print("\n".join(vendor_left_out.table(rows, of)))
        print()
    for before, after, keys in rows:
        if keys:
            print(f"{before.record['id']}: without {', '.join(keys)}: {after.reason or 'exact'}")


def main() -> None:
    words = sys.argv[1:]
    folder = Path(words[0])
    records = records_of(folder)
    if "--only" in words:
        text = words[words.index("--only") + 1]
        records = [record for record in records if text in f"{record['target']} {record['kind']} {record['id']}"]
    if "--misses" in words:
        wanted = words[words.index("--misses") + 1]
        for record in records:
            if wanted in record["id"]:
                entry = score(record)
                print(record["id"], entry.reason or "exact")
                print("\n".join(f"  {line}" for line in entry.differences))
        return
    if "--left-out" in words:
        show_left_out(records)
        return
    scores = [score(record) for record in records]
    if "--refresh" in words:
        refresh(Path(words[words.index("--refresh") + 1]), records, scores)
    if "--json" in words:
        rows = {entry.record["id"]: [entry.equal, entry.words, entry.reason] for entry in scores}
        print(json.dumps(rows, indent=1))
        return
    print("\n".join(table(scores, lambda entry: entry.record["target"])))
    print()
    print("\n".join(table(scores, lambda entry: entry.record["kind"])))
    print()
    print("\n".join(table(scores, lambda entry: "all")))
    if "--list" in words:
        print()
        for entry in scores:
            if not entry.is_exact:
                more = f"; {entry.differences[0]}" if entry.differences else ""
                print(f"{entry.record['id']}: {entry.reason}{more}")


if __name__ == "__main__":
    main()
