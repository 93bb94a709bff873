"""`python -m llama_watchdog.simulator.client URL`: a client that asks for one long text after another.

Prints a line for each token that arrives, and never gives up waiting: for `demo`, and for tests by hand.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

import httpx

_REQUEST = {"prompt": "Once upon a time", "n_predict": 3000, "stream": True}
_PAUSE = 0.25  # seconds before asking again where a connection ended


def main(url: str) -> None:
    """Ask for ever."""
    with httpx.Client(base_url=url, timeout=None, trust_env=False) as client:  # noqa: S113 - the patient kind
        while True:
            with suppress(httpx.HTTPError), client.stream("POST", "/completion", json=_REQUEST) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        sys.stdout.write("token\n")
                        sys.stdout.flush()
            time.sleep(_PAUSE)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        main(sys.argv[1])
