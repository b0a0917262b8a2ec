"""Acceptance of the GPU path on a real GPU, in two commands of up to eight minutes each.

    python -m lab.benchmarks.gpu_acceptance kernels [--cpu] [--minutes 8] [--out DIR]
    python -m lab.benchmarks.gpu_acceptance models [--weights DIR] [--adapter FILE] [--cpu] [--minutes 8] [--out DIR]

`kernels` compiles the kernels on all cores, checks that a GPU computes what a CPU does, and measures steps, with random
weights: no model needs to be there. `models` runs real weights: text, speed beside transformers, the whole server,
speech and an adapter. DIR has GGUF files or folders of safetensors, or slices of GGUF files (`weights.py`).

Every stage is a process of its own with a deadline, because an error inside a GPU kernel ends a process, and a kernel
that hangs ends nothing. What held is not run again: the same command goes on where it was stopped. Results are saved
after each stage, with a log for each, and in `gpu_acceptance.tar.gz`. The exit status is 0 if every check held, 1 if
one failed, and 3 if stages are left for another call.

`kernels` needs torch, numpy, safetensors and tokenizers, and nothing else of what Rejoinder installs; what lacks a
package is reported as not made. With `--cpu`, tiny shapes check the acceptance itself on a CPU.
"""
