"""Who runs the server, and can run it again: systemd, a container engine, or this process itself.

Each module speaks to one of them, in both directions: what it says of the server and its admin's will, and
what it is asked to do. They decide nothing.
"""
