"""What a watch keeps for the one after it: where its server's incident stands, and how slow a healthy one is.

What belongs here is the way between core's values and the store: whose they are, of which boot, how old.
"""

from __future__ import annotations

from dataclasses import replace

from llama_watchdog import log
from llama_watchdog.clock import WatchClock
from llama_watchdog.core.pace import Learned
from llama_watchdog.core.remembering import after_reboot, as_json, from_json, started_anew, take_over
from llama_watchdog.core.standing import Standing
from llama_watchdog.store import Store

# Of a process that was last watched longer ago nothing is looked for any more: by then its pid, and the
# number of its session, may be others'.
FORGOTTEN_AFTER = 3600.0


class Memory:
    """Of one server, by what it is reached at."""

    def __init__(self, store: Store, target: str) -> None:
        self._store = store
        self._target = target
        self._kept: Standing | None = None

    async def take_over(self, clock: WatchClock, *, anew: bool) -> Standing | None:
        """Where the watch before has left off; None: nowhere. `anew`: the server was just started."""
        remembered = await self._store.standing(self._target)
        if remembered is None:
            return None
        try:
            standing, kept_at = from_json(remembered.standing, clock.began)
        except ValueError:
            log.get_logger().warning(f"{self._target}: what was remembered of it can't be read: begun anew")
            return None
        if not remembered.this_boot:
            return after_reboot(standing)
        if anew:
            return started_anew(standing)
        at = clock.now()
        if at - max(kept_at, standing.until or kept_at) > FORGOTTEN_AFTER:
            standing = replace(standing, target=None)
        return take_over(standing, at, kept_at)

    async def remember(self, standing: Standing, clock: WatchClock) -> None:
        """Keep it, where it has changed."""
        if standing != (self._kept or Standing()):
            self._kept = standing
            await self._store.remember(self._target, as_json(standing, clock.began, clock.now()))

    async def pace(self, fingerprint: str) -> Learned:
        """What is known of the server of that fingerprint."""
        return await self._store.pace(fingerprint)

    async def keep_pace(self, fingerprint: str, learned: Learned) -> None:
        """Keep what was learned of it."""
        await self._store.keep_pace(fingerprint, learned)
