"""Acceptance of the GPU path on a real GPU, in one call of under ten minutes.

    python -m lab.benchmarks.gpu_acceptance [--cpu] [--minutes 9] [--out DIR]

Checks that a GPU computes what a CPU does, and measures it, with random weights: no model needs to be there. Needs
torch, numpy, safetensors and tokenizers, and nothing else of what Rejoinder installs. Every stage is a process of its
own with a deadline, because an error inside a GPU kernel ends a process, and a kernel that hangs ends nothing. Prints a
table with one summary line last, and writes DIR/gpu_acceptance.json and a log for each stage. Exits with 0 if every
check held.

With `--cpu`, tiny shapes check the acceptance itself on a CPU, in under two minutes.
"""
