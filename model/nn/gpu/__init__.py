"""Kernels for GPUs, in Triton, and the forward pass of a step that consists of them. Triton is optional: every kernel
has a plain PyTorch twin."""
