# pyright: reportMissingImports=false
"""The protobuf classes of Core ML models, from descriptors that this package ships.

``descriptors/model.binpb`` is the published ``Model.proto`` and all that it imports, as one serialized
FileDescriptorSet, under the BSD notice beside it (``tools/coreml_descriptors.py`` writes it). The classes live in a
pool of their own, so that an installed coremltools, which registers the same names, is not in their way.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from aneforge.errors import install_hint
from aneforge.frontends import LoadError

_DESCRIPTORS = Path(__file__).parent / "descriptors" / "model.binpb"
_PACKAGE = "CoreML.Specification"


def model_class(file: str) -> Any:
    """The class ``Model``. The error names ``file`` if protobuf is missing or does not fit."""
    try:
        return message_class("Model")
    except (ImportError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise LoadError(f"{file}: reading Core ML needs protobuf ({reason}): {install_hint('coreml')}") from None


@lru_cache(maxsize=64)
def message_class(name: str) -> Any:
    """The class of one message of Core ML's specification."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@lru_cache(maxsize=1)
def _pool() -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    return pool
