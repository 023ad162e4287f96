"""Ops of the standard that the engine cannot have, each with its reason. Where the result has a fixed shape the host
computes them."""

from __future__ import annotations

from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm
from aneforge.graph.tensor import Tensor

__all__ = ["REASONS", "RULES"]

_BITS = "bits of whole numbers: the engine computes in fp16"
_TEXT = "text: the engine computes numbers"
_SEQUENCE = "a sequence of tensors: programs of the engine take and give tensors"
_OPTIONAL = "a value that may be missing: programs of the engine take and give tensors"
_COUNT = "no form on the engine: how many results there are depends on the data"

REASONS: dict[str, str] = {
    "BitCast": _BITS,
    "BitShift": _BITS,
    "BitwiseAnd": _BITS,
    "BitwiseNot": _BITS,
    "BitwiseOr": _BITS,
    "BitwiseXor": _BITS,
    "ConcatFromSequence": _SEQUENCE,
    "DeformConv": "where the kernel reads depends on the data: the engine reads at fixed places",
    "Det": "a determinant has no form on the engine",
    "ImageDecoder": "a compressed picture: decode it before",
    "MaxRoiPool": "the largest of regions whose places depend on the data",
    "MaxUnpool": "where the elements go depends on the data: the engine writes to fixed places",
    "Multinomial": "a random choice: the engine has none",
    "NonMaxSuppression": _COUNT,
    "NonZero": _COUNT,
    "Optional": _OPTIONAL,
    "OptionalGetElement": _OPTIONAL,
    "OptionalHasElement": _OPTIONAL,
    "RegexFullMatch": _TEXT,
    "SequenceAt": _SEQUENCE,
    "SequenceConstruct": _SEQUENCE,
    "SequenceEmpty": _SEQUENCE,
    "SequenceErase": _SEQUENCE,
    "SequenceInsert": _SEQUENCE,
    "SequenceLength": _SEQUENCE,
    "SplitToSequence": _SEQUENCE,
    "StringConcat": _TEXT,
    "StringNormalizer": _TEXT,
    "StringSplit": _TEXT,
    "TfIdfVectorizer": "words are counted by look-up of whole numbers: keep it on the host",
    "Unique": _COUNT,
}


def _refusing_rule(reason: str) -> Rule:
    def rule(node: Node, *operands: Value | None) -> Tensor:
        raise NoForm(reason)

    return rule


RULES: dict[str, Rule] = {kind: _refusing_rule(reason) for kind, reason in REASONS.items()}
