"""Sockets and protocols: carries what `voice` and `model` do to the outside, and decides nothing."""

import os

# Threads that wait for each other spin for some 0.3 ms, then give the core away: the recognizer's and the language
# model's would otherwise hold both cores against each other for 3 ms at each of a pass's loops. Eight short questions
# took 611 ms with this (median), 678 with the library's own 300,000, 712 and 769 with 2,000.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")

# Before torch: whichever of the two comes second finds the first one's OpenMP there and shares it. Then its teams are
# more than there are cores, they stop spinning between loops, and a pass of the language model takes 38 ms, not 25.
import ctranslate2  # noqa: F401
