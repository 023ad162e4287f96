# pyright: reportMissingImports=false
"""Write the descriptors of Core ML's published .proto files that ``aneforge/formats/coreml/descriptors`` ships.

They are taken from an installed coremltools package, whose generated modules hold them, and they are shipped with its
BSD notice (``LICENSE.txt`` beside them). Run it after a new coremltools: ``python tools/coreml_descriptors.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "aneforge" / "frontends" / "coreml" / "descriptors"


def descriptor_set(root: Any) -> bytes:
    """A serialized FileDescriptorSet of one file and of all that it imports, the imported ones first."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    written: set[str] = set()

    def add(file: Any) -> None:
        if file.name in written:
            return
        written.add(file.name)
        for imported in file.dependencies:
            add(imported)
        file.CopyToProto(files.file.add())

    add(root)
    return files.SerializeToString(deterministic=True)


def main() -> None:
    from coremltools.proto import Model_pb2

    (FOLDER / "model.binpb").write_bytes(descriptor_set(Model_pb2.DESCRIPTOR))


if __name__ == "__main__":
    main()
