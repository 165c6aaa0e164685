"""The GPU matrix: what vLLM's own code answers for every model, GPU generation and release, on a faked CUDA platform.

`python -m tools.gpu_matrix` (`make gpu-matrix`) writes docs/gpu-matrix.json and docs/gpu-matrix.md.
"""
