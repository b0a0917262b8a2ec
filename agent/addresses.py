"""Which addresses are those of this machine."""

from __future__ import annotations

import ipaddress


def is_loopback(address: str) -> bool:
    """Whether only programs of this machine have an address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped.is_loopback
    return parsed.is_loopback


def leaves_machine(host: str) -> bool:
    """Whether what is sent to a host, by name or address, goes to another machine than this one."""
    named = host == "localhost" or host.endswith(".localhost")
    return not (named or is_loopback(host))
