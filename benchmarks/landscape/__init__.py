"""Recorded landscapes of real arms, for benchmarks/search_replay.py."""
