"""What measures and trains: the latency report, benchmarks, simulated callers, conversion."""
