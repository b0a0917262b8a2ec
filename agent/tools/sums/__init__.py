"""Sums and conversions in the user's own words. A question is computed only if all of its words are understood, so
that a sentence which merely has numbers in it is left to the language model."""
