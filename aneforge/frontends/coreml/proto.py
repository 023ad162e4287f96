"""The protobuf classes of Core ML, without the rest of coremltools.

Importing coremltools takes seconds and warns about libraries that only a Mac has. Its protobuf modules do not import
the rest of it, so they are loaded from its folder under a package name of our own.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

from aneforge.errors import install_hint
from aneforge.frontends import LoadError

__all__ = ["model_proto"]

_PACKAGE = "_aneforge_coreml_proto"


def model_proto(file: Path) -> Any:
    """The module of the class ``Model``. The error names ``file`` if coremltools is not installed."""
    loaded = sys.modules.get("coremltools.proto.Model_pb2")
    if loaded is not None:
        return loaded
    try:
        package_spec = importlib.util.find_spec("coremltools")
    except (ImportError, ValueError):
        package_spec = None
    places = list(package_spec.submodule_search_locations or []) if package_spec is not None else []
    if not places:
        raise LoadError(f"{file.name}: reading Core ML needs coremltools: {install_hint('coreml')}")
    if _PACKAGE not in sys.modules:
        package = types.ModuleType(_PACKAGE)
        package.__path__ = [str(Path(place) / "proto") for place in places]
        sys.modules.setdefault(_PACKAGE, package)  # another thread may have been faster
    try:
        return importlib.import_module(f"{_PACKAGE}.Model_pb2")
    except (ImportError, TypeError, AttributeError) as error:  # protobuf is missing, or its version does not fit
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise LoadError(
            f"{file.name}: coremltools' protobuf classes do not load ({reason}): {install_hint('coreml')}"
        ) from None
