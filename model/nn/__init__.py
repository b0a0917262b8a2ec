"""The neural network: layers, attention, the key-value cache, adapters, and kernels for CPUs and GPUs."""
