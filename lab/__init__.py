"""What measures: the latency report, benchmarks and simulated callers."""
