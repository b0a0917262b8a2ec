"""Sockets and protocols: carries what `voice` and `model` do to the outside, and decides nothing."""

# Before torch: whichever of the two comes second finds the first one's OpenMP there and shares it. Then its teams are
# more than there are cores, they stop spinning between loops, and a pass of the language model takes 38 ms, not 25.
import ctranslate2  # noqa: F401
