"""The latency report: speaks a corpus to a Realtime server in real time and measures the responses as heard."""
