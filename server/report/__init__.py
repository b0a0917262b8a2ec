"""The latency report: a corpus is spoken to a Realtime server in real time, and its answers are measured as heard."""
