"""Models as graphs of ONNX and OpenVINO: traced, checked against torch, and quantised."""
