"""Matrix multiplication with block-quantized weights on CPUs: formats, code generation, worker threads."""
