"""Leads: where constraints might pay out of distribution, each at matched seen score."""
