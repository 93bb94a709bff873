"""One module for each outside thing that is watched: each translates what it sees, and decides nothing."""
