"""Anytime networks: what a usable answer at every layer costs at the last one."""
