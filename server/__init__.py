"""Sockets and protocols: carries what `voice` and `model` do to the outside, and decides nothing."""
