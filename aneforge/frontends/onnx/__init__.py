"""ONNX: the standard's ops, and those that onnxruntime adds."""
