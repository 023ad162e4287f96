# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
"""coremltools' builder of MIL, loaded when it is needed and without its log messages."""

from __future__ import annotations

import contextlib
import io
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError, install_hint
from aneforge.process import quiet_warnings


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars, logs or warnings of the library. They belong to the process, so one thread at a time."""
    with quiet_warnings():
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            logging.disable(before)


def quiet_mil() -> Mil:
    """The builder, or an error that says how to get it."""
    try:
        with _quiet():
            import coremltools
            from coremltools.converters.mil import mil
    except ImportError:
        raise AneforgeError(
            f"coremltools: writing Core ML needs this package. Install it with {install_hint('coreml-export')}"
        ) from None
    return Mil(coremltools, mil)


class Mil:
    """Functions, ops and constants of an ML program."""

    def __init__(self, tools: Any, mil: Any) -> None:
        self._tools, self._mil, self._builder = tools, mil, mil.Builder

    def port(self, name: str, shape: Sequence[int], state: bool, kind: str) -> Any:
        types = self._mil.types
        if kind == "uint8":
            raise AneforgeError(
                f"{name}: the port takes bytes, which a package does not. Export the graph behind its cast, with "
                "fp16 pixels."
            )
        if state:
            return self._builder.state_tensor_placeholder(tuple(shape), dtype=types.fp16)
        return self._builder.placeholder(tuple(shape), dtype=types.fp16, name=name)

    @contextlib.contextmanager
    def function(self, ports: OrderedDict[str, Any]) -> Iterator[Any]:
        with _quiet(), self._mil.Function(ports, opset_version=self._tools.target.iOS18) as program:
            yield program

    def op(self, kind: str, name: str, **operands: Any) -> Any:
        try:
            return getattr(self._builder, kind)(name=name, **operands)
        except (ValueError, TypeError, AttributeError, RuntimeError) as error:
            line = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise AneforgeError(f"{name} ({kind}): Core ML's own checks refuse it: {line}") from None

    def is_bytes(self, value: Any) -> bool:
        """Whether a value is of 8-bit integers."""
        return value.dtype in (self._mil.types.int8, self._mil.types.uint8)

    def constant(self, values: Any, name: str) -> Any:
        return self._builder.const(val=np.ascontiguousarray(values), name=name)

    def sub_byte(self, codes: np.ndarray, bits: int, signed: bool) -> Any:
        """Codes in the builder's type of so many bits."""
        if bits == 8:
            return np.ascontiguousarray(codes.astype(np.int8 if signed else np.uint8))
        types = self._mil.types
        kind = types.string_to_builtin(f"{'int' if signed else 'uint'}{bits}")
        return np.ascontiguousarray(codes).astype(types.nptype_from_builtin(kind))

    def save(self, function: Any, file: Path) -> None:
        """The package: no pass of coremltools changes what was written."""
        program = self._mil.Program()
        program.add_function("main", function)
        with _quiet():
            package = self._tools.convert(
                program,
                source="milinternal",
                convert_to="mlprogram",
                minimum_deployment_target=self._tools.target.iOS18,
                compute_precision=self._tools.precision.FLOAT32,
                pass_pipeline=self._tools.PassPipeline.EMPTY,
                skip_model_load=True,
            )
            package.save(str(file))
        self._sort_maps(file)

    def _sort_maps(self, file: Path) -> None:
        """The same bytes from every process: protobuf leaves the order of its maps open."""
        from coremltools.proto import Model_pb2

        for place in file.rglob("*.mlmodel"):
            model = Model_pb2.Model()
            model.ParseFromString(place.read_bytes())
            place.write_bytes(model.SerializeToString(deterministic=True))
