"""What usage costs: a price list of the operator's own, and one of a hosted service to compare with."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from server.access.usage import Usage


class PriceList(BaseModel):
    """Prices in any currency; 0 is free.

    Attributes:
        minute: of conversation.
        audio_in_minute, audio_out_minute: of audio received and sent.
        million_input_tokens: read and not from the cache.
        million_cached_tokens: read from the cache.
        million_output_tokens: generated.
        cpu_hour: processor time of the server.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    minute: float = Field(0.0, ge=0)
    audio_in_minute: float = Field(0.0, ge=0)
    audio_out_minute: float = Field(0.0, ge=0)
    million_input_tokens: float = Field(0.0, ge=0)
    million_cached_tokens: float = Field(0.0, ge=0)
    million_output_tokens: float = Field(0.0, ge=0)
    cpu_hour: float = Field(0.0, ge=0)

    def cost(self, usage: Usage) -> float:
        """What this usage costs."""
        read = max(0, usage.input_tokens - usage.cached_tokens)
        return (
            self.minute * usage.seconds / 60
            + self.audio_in_minute * usage.audio_in_s / 60
            + self.audio_out_minute * usage.audio_out_s / 60
            + self.million_input_tokens * read / 1e6
            + self.million_cached_tokens * usage.cached_tokens / 1e6
            + self.million_output_tokens * usage.output_tokens / 1e6
            + self.cpu_hour * usage.cpu_s / 3600
        )


class Prices(PriceList):
    """The operator's prices.

    Attributes:
        currency: shown with every amount.
        hosted: prices of a hosted service for the same usage.
    """

    currency: str = ""
    hosted: PriceList | None = None
