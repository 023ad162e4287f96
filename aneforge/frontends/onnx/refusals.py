"""Ops of the standard that the engine cannot run, and why. The host computes them if the result has a fixed shape."""

from __future__ import annotations

_BITS = "bits of integers are not supported; the engine computes in fp16"
_TEXT = "text is not supported; the engine takes numbers only"
_SEQUENCE = "sequences of tensors are not supported; the engine takes and gives tensors only"
_OPTIONAL = "optional values are not supported; the engine takes and gives tensors only"
_COUNT = "the size of the result depends on the data; the engine needs fixed sizes"

REASONS: dict[str, str] = {
    "BitCast": _BITS,
    "BitShift": _BITS,
    "BitwiseAnd": _BITS,
    "BitwiseNot": _BITS,
    "BitwiseOr": _BITS,
    "BitwiseXor": _BITS,
    "ConcatFromSequence": _SEQUENCE,
    "DeformConv": "the positions that the kernel reads depend on the data; the engine reads at fixed positions",
    "Det": "the engine has no op for a determinant",
    "ImageDecoder": "compressed images are not supported; decode the image before the model",
    "MaxRoiPool": "the regions depend on the data; the engine reads at fixed positions",
    "MaxUnpool": "the positions that are written depend on the data; the engine writes to fixed positions",
    "Multinomial": "it draws a random choice in every run; the engine has no op for it",
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
    "TfIdfVectorizer": "words are counted by looking up integers; the engine has no op for it",
    "Unique": _COUNT,
}
"""By op."""
