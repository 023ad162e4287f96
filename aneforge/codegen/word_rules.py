"""Which rule writes a word: for a person who compares a program of ours with one of the vendor.

A word is named as :func:`aneforge.codegen.describe.differences` names it. What no rule here has is a word that we copy
from published programs, or that we do not write.
"""

from __future__ import annotations

import re
from functools import cache

from aneforge.codegen.dialect import NAMES, resolved

_BY_MEANING: tuple[tuple[str, str], ...] = (
    ("in.depth out.depth kernel.depth kernel.stride_z kernel.step", "always 1: tensors have no depth"),
    ("in. out.", "extents of one group as the engine computes them; a reduction states its source twice"),
    ("format.", "fp16 is 2 (enums.json)"),
    ("kernel.", "the window, its steps, and the padding above and left; later generations leave out a plain 1x1"),
    (
        "outputs_per_core",
        "log2 of the outputs of a core: the largest power of two up to outputs / 16, at most 32",
    ),
    ("groups unicast", "groups of a convolution, images of a planar task; depthwise and copies read one channel each"),
    ("tile.", "rows at a time: all, or as many as 0x1e0000 bytes hold (U240)"),
    ("patch.", "log2 of the width within the chip's clamps, and rows up to 256 numbers, 512 with one source"),
    ("task.cores", "log2 of min(16, outputs), rounded up"),
    (
        "task.share",
        "rows shared by cores: min(4, 7 - log2 of the width), with exceptions for small windows and points",
    ),
    ("task.small_source", "set up to 8 columns"),
    ("task.type", "2 copy, 3 two sources, 4 a number for each channel, 5 reduction"),
    ("task.transposes task.word task.bit0 task.dual_source", "result turned, two sources, rows side by side"),
    ("task.network", "a number that is the same in all tasks of an engine"),
    ("planar.mask", "axes over which a source is stretched, and sources or results that are turned"),
    ("planar.scale", "1 / N of a mean, as a single"),
    ("planar.bias planar.factor planar.pre_scale", "the number that is added or multiplied with"),
    ("planar.", "the operation of two sources, a reduction or a pool, and relu"),
    ("mac.same_bias", "one bias for all outputs; an epsilon for tables of roots and reciprocals"),
    ("mac.scale", "a factor behind the products, or log2 e in front of a table of powers of two"),
    ("mac.", "convolution or copy, bias, and activation: 1 relu, 2 table"),
    (
        "scratch.source.row scratch.second.row",
        "channels * channel stride, and a pad that puts rows on different banks",
    ),
    ("scratch.source.base scratch.second.base scratch.result.base", "behind what the task group keeps, then in order"),
    ("scratch.source.config scratch.second.config scratch.result.config", "what earlier tasks have at the same place"),
    ("scratch.", "strides of the row in on-chip memory; the channel stride is the row in units of 16 bytes"),
    ("source.format second.format result.format", "fp16, and the rows that lie side by side"),
    ("source.config second.config result.config source.hints", "whether memory brings or takes the tensor"),
    ("source.base second.base result.base", "where the tensor begins in its buffer"),
    ("source. second. result.", "strides of the tensor in memory: rows of 64 bytes, planes of rows"),
    ("constants. table.", "streams of 16 cores, rounded up to 64 bytes; tables of 128 bytes"),
)
_BY_NAME: tuple[tuple[str, str], ...] = (
    (r"header ExeCycles", "the longest of moving memory, reading flat channels and multiplying, in microseconds"),
    (r"header (R|W|K)B.*", "base-address registers in the order of the names of the tensors"),
    (r"header (TID|LNID|EON|Next.*)", "the place of the task in the chain"),
    (r"header .*", "first, middle or last task, engine, and what it waits for"),
    (r"BAR added at .*", "base-address registers in the order of the names of the tensors"),
    (r"KernelDMASrc\.Coeff.*", "streams of 16 cores, rounded up to 64 bytes; tables of 128 bytes"),
    (r"L2\.ResultBase.*", "behind what the task group keeps, then in order"),
)
_TASK = re.compile(r"task \d+ (.*)")
_COPY = re.compile(r"\[\d+\]")


def rule_of(name: str, generation: str) -> str:
    """The rule behind a word of a task; empty for what is no word of a task."""
    match = _TASK.fullmatch(name)
    if match is None:
        return ""
    word = match[1]
    for pattern, rule in _BY_NAME:
        if re.fullmatch(pattern, word):
            return rule
    meanings = _meanings(generation)
    plain = _COPY.sub("", word)
    meaning = meanings.get(plain) or meanings.get(plain.rpartition(".")[0], "")
    for prefixes, rule in _BY_MEANING:
        if meaning and meaning.startswith(tuple(prefixes.split())):
            return rule
    return "none: it is copied from published programs, or we do not write it"


@cache
def _meanings(generation: str) -> dict[str, str]:
    """What we call the fields and registers of a generation, by their names in the map."""
    names = {}
    for meaning in NAMES:
        found = resolved(generation, meaning)
        if found is not None:
            register, field = found
            label = f"{register.block}.{register.label}"
            names.setdefault(label if field is None else f"{label}.{field.name}", meaning)
            names.setdefault(label, meaning)
    return names
