"""What can't be seen of a server that answers, what that means for its judgement, and what would show it.

What it reads from disk is none of these, although another user's reads can't be seen without more rights:
only a load that hangs is judged by it, and then given more time.
"""

from __future__ import annotations

from llama_watchdog.core.observation import Observation, Outcome, Watch

RIGHTS = "run as root or as its user, or grant CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"


def blind_spots(observation: Observation, watch: Watch, why: str) -> list[str]:
    """One line each, `why` being the reason that there is no process; nothing of a server that is not up."""
    process, slots = observation.process, observation.slots
    if process is None or slots is None or slots.outcome is not Outcome.OK:
        return []
    if process.outcome is not Outcome.OK:
        reason = why or process.outcome.value
        return [f"its process can't be seen ({reason}): it gets the longest budgets, and no signals"]
    if watch.uses_gpu is None:
        return [f"whether it uses a GPU can't be seen, so `unknown` counts in place of `blocked`: {RIGHTS}"]
    return []
