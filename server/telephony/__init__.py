"""Phone calls: a carrier's media stream becomes a Realtime conversation."""
