"""The ground that the end-to-end tests stand on: a real llama-server, a real systemd, and faithful wedges.

Nothing here knows how llama-watchdog judges or acts; it builds the world around it and looks at what a user
of that world would see.
"""
