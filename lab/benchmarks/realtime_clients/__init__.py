"""Holds a conversation with the server through clients that other people wrote, each in an environment of its own.

python -m lab.benchmarks.realtime_clients [--clients openai livekit] [--work DIR] [--url http://HOST:PORT]
"""
