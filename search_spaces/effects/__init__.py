"""Effects of searched values within a run: ranges stated on them."""
