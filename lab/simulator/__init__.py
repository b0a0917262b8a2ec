"""Simulated clients and phone carriers, shared by the report, the tests and `rejoinder call`."""
