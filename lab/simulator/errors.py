"""Errors between a simulated client and the server under test."""

from __future__ import annotations


class ServerUnavailable(Exception):
    """The server cannot be measured; the message tells why."""
