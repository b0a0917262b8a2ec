"""Bulk work: files of requests, and batches that answer them while nobody else needs the model."""
