"""Phone calls: any carrier's media stream as a Realtime conversation."""
