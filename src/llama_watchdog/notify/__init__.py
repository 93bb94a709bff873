"""Outlets: they tell others what the watch sees, and decide nothing."""
