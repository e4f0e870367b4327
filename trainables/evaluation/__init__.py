"""Held-out measurement of an arm: losses, scores, shifts, probes, answers."""
