"""What a path holds: the format by its ending, or by what is inside, and what to do about files that are not read."""

from __future__ import annotations

import zipfile
from pathlib import Path

from aneforge.errors import LoadError

_EXPORT = (
    "Build the module, load the weights and export it: "
    "torch.export.save(torch.export.export(module.eval(), (example,)), 'model.pt2')"
)
_TO_ONNX = "Convert it to ONNX with tf2onnx (python -m tf2onnx.convert {} --output model.onnx)"
_COMPILED = "Use aneforge inspect or aneforge run; give this command the model that it was compiled from"

REFUSED: dict[str, str] = {
    ".anec": f"a compiled program, not a model. {_COMPILED}",
    ".aimodelc": (
        "a Core AI model compiled for one device; its format is not published, so its regions and their devices "
        "cannot be listed. Give the .aimodel that it was compiled from, or a plan of it as JSON to aneforge plan"
    ),
    ".bin": f"weights without a model (or Core ML weights outside their package). {_EXPORT}, or give the .mlpackage",
    ".ckpt": f"a checkpoint: weights without a model. {_EXPORT}",
    ".gguf": f"weights and settings for llama.cpp; it holds no operations. Take the model from its source. {_EXPORT}",
    ".h5": "a Keras model or weights. Load it in Keras, then model.export('model.onnx', format='onnx')",
    ".hwx": f"a compiled program, not a model. {_COMPILED}",
    ".keras": "a Keras model. Load it in Keras, then model.export('model.onnx', format='onnx')",
    ".pb": f"a TensorFlow graph. {_TO_ONNX.format('--saved-model FOLDER')}",
    ".pt": f"a pickle of PyTorch, which could run code, or TorchScript; neither is read. {_EXPORT}",
    ".pte": f"an ExecuTorch program, lowered for a runtime. Give the exported program. {_EXPORT}",
    ".pth": f"a pickle of PyTorch, which could run code; it is not read. {_EXPORT}",
    ".safetensors": f"weights without a model. {_EXPORT}",
    ".tflite": f"a TensorFlow Lite model. {_TO_ONNX.format('--tflite MODEL.tflite')}",
}
"""Files that people have and that are not read: what each is, and what to do."""

PACKAGE, COMPILED, ASSET = ".mlpackage", ".mlmodelc", ".aimodel"
SPECIFICATIONS = ("Data/com.apple.CoreML/model.mlmodel", "com.apple.CoreML/model.mlmodel", "model.mlmodel")
"""Where the specification of a package is, from the package, its ``Data`` folder, or the folder around the model."""
_CACHES = ("com.apple.e5rt.e5bundlecache", "com.apple.coreai", ".bundle", ".e5")
_ENDINGS = "a model that is a folder is a .mlpackage, .mlmodelc or .aimodel"


def ending_of(file: Path) -> str:
    """The ending that stands for a path's format. A folder without one of its own is known by what is inside.

    Files that are known and not read are refused with what to do."""
    ending = file.suffix.casefold()
    if ending in REFUSED and (file.is_file() or ending == ".aimodelc"):
        archived = _archive_kind(file)
        if archived is not None:
            return archived
        raise LoadError(f"{file.name}: {REFUSED[ending]}")
    if not file.is_dir():
        return ending
    inside = kind_of_folder(file)
    if inside is None and ending in (PACKAGE, COMPILED, ASSET):
        return ending  # its reader says what is missing
    if inside is None:
        raise LoadError(f"{file.name}: {_what_folder(file)}")
    return inside


def _archive_kind(file: Path) -> str | None:
    """What an archive under another name is: an exported program, or a graph that was saved; else None."""
    if not file.is_file() or not zipfile.is_zipfile(file):
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return None
    if any(name.partition("/")[2] == "models/model.json" for name in names):
        return ".pt2"
    return file.suffix.casefold() if "graph.json" in names else None


def kind_of_folder(folder: Path) -> str | None:
    """The format of a model that is a folder, by the files in it; None where none is known."""
    listed = (folder / "Manifest.json").is_file() and (folder / "Data").is_dir()  # web pages have a manifest too
    if listed or any((folder / place).is_file() for place in SPECIFICATIONS):
        return PACKAGE
    if (folder / "model.mil").is_file() or (folder / "coremldata.bin").is_file():
        return COMPILED
    return ASSET if (folder / "main.mlirb").is_file() else None


def _what_folder(folder: Path) -> str:
    """Why a folder is not a model: what it is, where that can be seen, and what to do."""
    if (folder / "saved_model.pb").is_file():
        return f"a TensorFlow SavedModel. {_TO_ONNX.format('--saved-model FOLDER')}"
    if any(mark in part.casefold() for part in (folder.name, folder.resolve().parent.name) for mark in _CACHES):
        return (
            "a cache that macOS keeps of compiled models, named after the build of the system; its format is not "
            "published and another system does not use it. Give the model itself"
        )
    if (folder / "config.json").is_file():
        return f"a folder of Hugging Face: settings and weights, no operations. {_EXPORT}"
    return f"is a folder, and no model was found in it; {_ENDINGS}"
