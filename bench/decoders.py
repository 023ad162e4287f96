"""Language models: published rates of decoding and of prompts against estimates.

``python bench/decoders.py FACTS --markdown`` prints every rate of ``third/llm_limits.json`` whose model is an ordinary
decoder of published sizes, beside the estimate of the same model on the same chip, and the laws that the rates show:
how a step grows with the compiled length of its cache, what fewer programs gain, and what a prompt of many rows costs.

A model is its block, repeated, and its head, each compiled as users' graphs are: the cache is a state, or an input and
an output, as the source's programs have it. Nothing here is fitted; none of these rates is among the fitted rows.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import cost_samples as samples
import numpy as np

import aneforge as af
from aneforge.chips import store
from aneforge.compiler.program import Program
from aneforge.cost.calls import Constants, Ports, call_us
from aneforge.cost.constants import basis_of
from aneforge.cost.estimate import ports_of
from aneforge.cost.layers import Surroundings, columns_of, times_of
from aneforge.cost.program import residents_of, work_of_program
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor


@dataclass(frozen=True)
class Decoder:
    """The sizes of a published decoder."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    normed_heads: bool = False
    """Queries and keys are normed, as Qwen3 and OLMo 2 do."""


DECODERS = {
    "Llama-2-7B": Decoder(32, 4096, 32, 32, 128, 11008, 32000),
    "Llama-3.2-3B": Decoder(28, 3072, 24, 8, 128, 8192, 128256),
    "Llama-3.1-8B": Decoder(32, 4096, 32, 8, 128, 14336, 128256),
    "Qwen2.5-0.5B": Decoder(24, 896, 14, 2, 64, 4864, 151936),
    "DeepSeek-R1-Distill-Qwen-1.5B": Decoder(28, 1536, 12, 2, 128, 8960, 151936),
    "TinySwallow-1.5B": Decoder(28, 1536, 12, 2, 128, 8960, 151936),
    "VibeThinker-1.5B": Decoder(28, 1536, 12, 2, 128, 8960, 151936),
    "Qwen3-0.6B": Decoder(28, 1024, 16, 8, 128, 3072, 151936, True),
    "Qwen3-1.7B": Decoder(28, 2048, 16, 8, 128, 6144, 151936, True),
    "Ternary Bonsai 1.7B": Decoder(28, 2048, 16, 8, 128, 6144, 151936, True),
    "Qwen3-4B": Decoder(36, 2560, 32, 8, 128, 9728, 151936, True),
    "Qwen3-8B": Decoder(36, 4096, 32, 8, 128, 12288, 151936, True),
    "OLMo-2-1B": Decoder(16, 2048, 16, 16, 128, 8192, 100352, True),
    "SmolLM3-3B": Decoder(36, 2048, 16, 4, 128, 11008, 128256),
}
"""Sizes of public checkpoints; models of other kinds (linear attention, convolutions, mixed windows) are left out."""

_BITS = ((r"lut6", "lut6"), (r"int8", "lut8"), (r"4/8|4-bit|int4", "lut4"), (r"fp16", "fp16"))


@dataclass(frozen=True)
class Case:
    """One published rate and the programs that it is of."""

    row: Mapping[str, Any]
    model: Decoder
    chip: str
    stored: str
    context: int
    calls: int
    as_state: bool
    scope: str

    @staticmethod
    def of(row: Mapping[str, Any]) -> Case | None:
        """None where the model, its chip, its weights or its cache are not told, or another engine ran it."""
        stored = next((name for pattern, name in _BITS if re.search(pattern, str(row["weights"]))), None)
        known = row["model"] in DECODERS and row["chip"] in store.load("products")["products"]
        if not known or stored is None or not isinstance(row["context"], int) or "GPU" in row["route"]:
            return None
        model, words = DECODERS[row["model"]], f"{row['route']} {row['note']}"
        blocks = re.search(r"(\d+) blocks a chunk", words)
        chunks = re.search(r"(\d+) chunks", words)
        calls = -(-model.layers // int(blocks[1])) + 2 if blocks else int(chunks[1]) if chunks else 1
        as_state = "version" not in words  # the first two versions of one source hand the cache in and out
        scope = "coreai_call" if "Core AI" in words else "direct_call" if "direct" in words else "coreml_call"
        context = min(row["context"], _bucket(words)) if scope == "coreai_call" else row["context"]
        return Case(row, model, row["chip"], stored, context, calls, as_state, scope)


def _bucket(words: str) -> int:
    """The length that a cache of Core AI is compiled for, which doubles from 256 to what is needed (LL02)."""
    tokens = [int(number.replace(",", "")) for number in re.findall(r"(?:after|in,) ([\d,]+)", words)] or [128]
    return 2 ** max(8, math.ceil(math.log2(max(tokens))))


@cache
def programs_of(model: Decoder, target: str, rows: int, context: int, as_state: bool) -> tuple[Any, Any]:
    """The block and the head as programs of a target."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [
            af.partition(graph, target).programs for graph in (block(model, rows, context, as_state), head(model))
        ]
    return tuple(next(iter(each.values())) for each in parts)


def _weight(outputs: int, inputs: int, number: int) -> np.ndarray:
    """A weight of its own in which one number is repeated: no memory is taken for it."""
    return np.broadcast_to(np.float16(0.01 + number * 2.0**-13), (outputs, inputs))


def block(model: Decoder, rows: int, context: int, as_state: bool) -> Graph:
    """One block for ``rows`` new tokens, with a cache that is compiled for ``context`` of them."""
    width, size, groups = model.width, model.head, model.heads // model.kv_heads
    gain = np.ones(width, np.float16)
    numbers = iter(range(16))

    def dense(x: Tensor, outputs: int) -> Tensor:
        return x.linear(_weight(outputs, x.shape[-1], next(numbers)))

    def heads(x: Tensor, count: int) -> Tensor:
        split = x.reshape(rows, count, size).transpose([1, 0, 2])
        return split.rms_norm(np.ones(size, np.float16), 1e-6) if model.normed_heads else split

    def turned(x: Tensor) -> Tensor:
        half = size // 2
        other = af.concat([-x[:, :, half:], x[:, :, :half]], axis=2)
        return x * af.input((rows, size), name="cosines") + other * af.input((rows, size), name="sines")

    x = af.input((rows, width), name="x")
    y = x.rms_norm(gain, 1e-6)
    q, k = (
        turned(heads(dense(y, model.heads * size), model.heads)),
        heads(dense(y, model.kv_heads * size), model.kv_heads),
    )
    k, v = turned(k), dense(y, model.kv_heads * size).reshape(rows, model.kv_heads, size).transpose([1, 0, 2])
    kept, states = [], {}
    for name, new in (("keys", k), ("values", v)):
        cached = af.input((model.kv_heads, context, size), name=name)
        if rows == context:  # a prompt that fills the cache reads none
            kept.append(new.named(f"{name}_out"))
            continue
        place = min(context // 2, context - rows - 1)
        parts = [cached[:, :place], new, cached[:, place + rows :]] if as_state else [cached[:, rows:], new]
        kept.append(af.concat(parts, axis=1).named(f"{name}_out"))
        states[name] = f"{name}_out"
    keys, values = kept
    # Heads that share keys are rows of one product, so that nothing is repeated.
    scores = (q.reshape(model.kv_heads, groups * rows, size) @ keys.mT) * size**-0.5
    scores = scores.reshape(model.heads, rows, context) + af.input((1, rows, context), name="mask")
    weights = scores.softmax(-1).reshape(model.kv_heads, groups * rows, context)
    mixed = (weights @ values).reshape(model.heads, rows, size).transpose([1, 0, 2]).reshape(rows, model.heads * size)
    x = x + dense(mixed, width)
    y = x.rms_norm(gain, 1e-6)
    x = x + dense(dense(y, model.inner).silu() * dense(y, model.inner), width)
    return Graph([x.named("y"), *kept], states if as_state else {})


def head(model: Decoder) -> Graph:
    """The last norm and the vocabulary for one token, in pieces that every chip takes."""
    x = af.input((1, model.width), name="x").rms_norm(np.ones(model.width, np.float16), 1e-6)
    rows = -(-model.vocabulary // 16)
    return Graph([x.linear(_weight(rows, model.width, number)).named(f"logits_{number}") for number in range(16)])


_BESIDE = ("x", "y", "mask", "cosines", "sines")
"""Ports that blocks of one program hand to each other, or share."""


def step_us(case: Case, rows: int = 1, context: int | None = None) -> float:
    """Microseconds for ``rows`` new tokens, and one row of logits."""
    target = store.load("names")["products"][case.chip]["target"]
    known = basis_of(case.chip).constants
    programs = programs_of(case.model, target, rows, context or case.context, case.as_state)
    repeats = (case.model.layers, 1)
    engine_us = sum(
        repeat * _engine_us(program, case.stored, known) for program, repeat in zip(programs, repeats, strict=True)
    )
    cache, handed = ports_of(programs[0], _BESIDE), 2.0 * rows * case.model.width * case.calls
    copied = Ports(
        case.model.layers * cache.read + handed,
        case.model.layers * cache.written + handed + 2.0 * case.model.vocabulary,
    )
    start_us = float(call_us(case.scope, 0.0, Ports(0.0, 0.0), known))
    return float(call_us(case.scope, engine_us, copied, known)) + (case.calls - 1) * start_us


def _engine_us(program: Program, stored: str, known: Constants) -> float:
    works = [samples.encoded(work, stored) for work in work_of_program(program)]
    around = Surroundings(np.array(residents_of(program), bool), converted=True)
    return float(times_of(columns_of(works), known, around).us.sum())


Judged = tuple[Case, float, float]
"""A case, and its tokens per second as published and as estimated."""


def decoding(cases: Sequence[Case]) -> list[Judged]:
    rates = [(case, case.row["decode_tok_s"]) for case in cases]
    return [(case, float(rate), 1e6 / step_us(case)) for case, rate in rates if rate]


PROMPT_ROWS = 64  # of a program for prompts, where the row does not say


def prompts(cases: Sequence[Case]) -> list[Judged]:
    """Rates of prompts that say how long one took: so many calls of a program of 64 rows or more."""
    results = []
    for case in cases:
        batch = case.row["prefill_batch"]
        timed = re.search(r"(\d+)-token prompt in ([\d.]+) s", str(case.row["note"]))
        rate = int(timed[1]) / float(timed[2]) if timed else case.row["prefill_tok_s"]
        if rate and batch and case.context >= batch >= PROMPT_ROWS:
            results.append((case, float(rate), 1e6 * batch / step_us(case, batch)))
    return results


def table(judged: Sequence[Judged]) -> list[str]:
    headers = ("id", "model", "chip", "weights", "context", "programs", "published", "estimated", "ratio")
    rows = [
        (case.row["id"], case.row["model"], case.chip, case.stored, f"{case.context:,}", str(case.calls),
         f"{seen:,.1f}", f"{ours:,.1f}", f"{ours / seen:.2f}")
        for case, seen, ours in judged
    ]  # fmt: skip
    return _markdown(headers, rows, texts=4)


def figures(what: str, judged: Sequence[Judged]) -> str:
    ratios = [ours / seen for _, seen, ours in judged]
    typical = math.exp(statistics.mean(abs(math.log(ratio)) for ratio in ratios))
    middle = 100 * statistics.median(abs(ratio - 1) for ratio in ratios)
    return f"{what}: {len(ratios)} rates, typical factor {typical:.2f}, median error {middle:.0f} %."


DISPUTED = ("LR10",)  # another page of the same source says three times as much (C89)
LENGTHS = (1024, 2048, 4096)


def laws() -> list[str]:
    """What the rates show beside their size, as published and as estimated."""
    bonsai, llama = DECODERS["Ternary Bonsai 1.7B"], DECODERS["Llama-3.2-3B"]
    one = Case({}, llama, "M4 Max", "lut4", 2048, 4, True, "coreml_call")
    phone = replace(one, chip="A19 Pro")
    by_length = [
        1e6 / step_us(replace(one, model=bonsai, context=length, calls=2, as_state=False)) for length in LENGTHS
    ]
    rows = [
        ("LL01", "a cache of 1,024, 2,048 and 4,096 places, handed in and out, M4 Max", "24.1, 9.4, 4.9 tokens/s",
         ", ".join(f"{rate:.1f}" for rate in by_length)),
        ("LL03", "3 programs instead of 4, A19 Pro", "1.08 times the rate",
         f"{step_us(phone) / step_us(replace(phone, calls=3)):.2f}"),
        ("LL04", "a cache as state instead of in and out, 2,048 places, M4 Max", "1.3 to 3.3 times the rate",
         f"{step_us(replace(one, as_state=False)) / step_us(one):.2f}"),
        ("LL07", "a prompt by 8 rows instead of one by one, M4 Max", "7.1 to 7.8 times the rate",
         f"{8 * step_us(one) / step_us(one, 8):.2f}"),
    ]  # fmt: skip
    return _markdown(("id", "what changes", "published", "estimated"), rows, texts=4)


def _markdown(headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> list[str]:
    """A table whose first columns are words and whose others are numbers."""
    line = "| " + " | ".join("---" if place < texts else "---:" for place in range(len(headers))) + " |"
    return [f"| {' | '.join(headers)} |", line, *(f"| {' | '.join(row)} |" for row in rows)]


def page(rates: Sequence[Mapping[str, Any]]) -> list[str]:
    cases = [case for row in rates if (case := Case.of(row))]
    steps, long = decoding(cases), prompts(cases)
    certain = [one for one in steps if one[0].row["id"] not in DISPUTED]
    return [
        "<!-- Generated by `python bench/decoders.py FACTS --markdown`: change its source, not this page. -->",
        "",
        "# How good the rates of language models are",
        "",
        "Published rates of language models, in tokens per second, beside the estimates of the same models on the "
        "same chips. Nothing was fitted to these rates. A model is its block, repeated, and its head in 16 pieces; "
        "the cache has the compiled length, and of Core AI the length of the bucket that the tokens need. "
        f"{len(rates) - len(cases)} of {len(rates)} published rates are left out: models of other kinds (linear "
        "attention, convolutions), a chip, cache or weights that are not named, or a GPU.",
        "",
        "## Decoding, one token at a time",
        "",
        *table(steps),
        "",
        f"{figures('All', steps)} {figures('Without LR10, which is disputed (C89)', certain)}",
        "",
        "Rates of one model on one chip differ by up to 1.4 here (LR39, LR41, LR47, LR50: versions of a program and "
        "of the system), which no estimate knows.",
        "",
        "## Prompts",
        "",
        *table(long),
        "",
        figures("All", long),
        "",
        "## What the rates show beside their size",
        "",
        *laws(),
        "",
        "LL01 is of an M-series Mac that is not named, and of a cache written with a mask, which reads and writes all "
        "of it in each layer. The estimate is of a cache that is shifted, and falls more slowly.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Published rates of language models against estimates.")
    parser.add_argument("facts", type=Path, help="the folder that holds third/llm_limits.json")
    parser.add_argument("--markdown", action="store_true", help="print the page (which is all that is printed anyway)")
    chosen = parser.parse_args()
    file = chosen.facts / "third" / "llm_limits.json"
    if not file.is_file():
        parser.error(f"{chosen.facts}: no third/llm_limits.json in this folder")
    print("\n".join(page(json.loads(file.read_text(encoding="utf-8"))["rates"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
