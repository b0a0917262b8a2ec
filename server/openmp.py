"""OpenMP settings that must be in force before torch is imported. Import this module first in every process that runs
both speech recognition and the language model.

torch and CTranslate2 each bring an OpenMP runtime. If torch is imported first, CTranslate2 finds and shares torch's
runtime; the thread teams then outnumber the cores, stop spinning between loops, and a forward pass takes 38 ms instead
of 25.
"""

import os
import sys

if "torch" in sys.modules:
    raise ImportError("import server.openmp before torch: otherwise forward passes take half as long again")

# Waiting OpenMP threads spin for about 3 µs, then yield the core. The language model multiplies with threads of its own
# (model/nn/cpu/team.py), and OpenMP threads that spin for longer after a small operation would keep those off a core:
# reading 64 tokens of a prompt took 174 ms with 30,000 iterations (about 0.3 ms), and 127 ms with this.
os.environ.setdefault("GOMP_SPINCOUNT", "300")

import ctranslate2  # noqa: F401
