"""What all tests share: they run as in the foreground of a terminal."""

from __future__ import annotations

import signal

# A shell that starts something in the background has it ignore SIGINT, and all that is started from there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
