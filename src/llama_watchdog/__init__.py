"""llama-watchdog: watches llama-server from outside, proves a wedge, and brings the server back."""

__version__ = "0.1.0"
