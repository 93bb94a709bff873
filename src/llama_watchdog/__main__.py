"""The program `llama-watchdog`, and `python -m llama_watchdog`."""

import os
import sys

from llama_watchdog import init


def main() -> int:
    """Run one command; returns its exit code. As process 1, of a container, below an init of our own."""
    status = init.split() if os.getpid() == 1 else None
    if status is not None:
        return status
    from llama_watchdog.cli import main as command  # after the fork: the init needs none of it

    return command()


if __name__ == "__main__":
    sys.exit(main())
