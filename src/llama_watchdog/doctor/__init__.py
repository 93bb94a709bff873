"""What works here, found out without harming anything: for `doctor`, and at the daemon's start.

What belongs here: the checks, each of which says what is lost and the exact line that would give it. They
only look, or ask for what is always refused; what is done to a server is the hands' alone.
"""

from llama_watchdog.doctor.checkup import examine, self_test
from llama_watchdog.doctor.finding import Finding, Works

__all__ = ["Finding", "Works", "examine", "self_test"]
