"""Which of the server's tools a conversation may call, by where it takes place and by API key."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Channel = Literal["web", "phone", "api"]
"""Where a conversation takes place: in a browser, by telephone, or in another client of the Realtime protocol."""


class ToolAccess(BaseModel):
    """The table `tools` of the configuration file.

    Attributes:
        web, phone, api: names of the tools there; None for all.
        keys: by the name of an API key. Others may call what their channel may.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    web: tuple[str, ...] | None = None
    phone: tuple[str, ...] | None = None
    api: tuple[str, ...] | None = None
    keys: dict[str, tuple[str, ...]] = {}

    @property
    def tools(self) -> set[str]:
        """All names of tools in the lists."""
        lists = (self.web, self.phone, self.api, *self.keys.values())
        return {name for names in lists for name in names or ()}

    def allowed(self, channel: Channel, key: str) -> frozenset[str] | None:
        """The tools that both the channel and the key allow; None for all."""
        by_channel: dict[Channel, tuple[str, ...] | None] = {"web": self.web, "phone": self.phone, "api": self.api}
        lists = [frozenset(names) for names in (by_channel[channel], self.keys.get(key)) if names is not None]
        return frozenset.intersection(*lists) if lists else None
