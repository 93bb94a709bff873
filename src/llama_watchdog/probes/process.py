"""The server's process, from one incarnation to the next.

What belongs here is which incarnation is watched, and how each look at it went; `finding` tells which process
it is, `reading` what it does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from llama_watchdog.core.action import Identity
from llama_watchdog.core.observation import Left, Outcome, Process
from llama_watchdog.probes import finding, remains, sockets, traits
from llama_watchdog.probes import place as places
from llama_watchdog.probes.finding import Door, Found, Group, NotFoundError, Wanted
from llama_watchdog.probes.procfs import ProcessFolder
from llama_watchdog.probes.reading import Reader
from llama_watchdog.probes.traits import Traits
from llama_watchdog.supervisors.base import Supervisor
from llama_watchdog.worker import StillBusyError, Worker

_RECHECK = 10.0  # a GPU is opened while the model loads, and then stays open; as are connections to --rpc


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One look. `why`: for people, why there is no process; "" where there is one.

    `clients`: established connections to the server that are not ours; None where they can't be told.
    `identity` and `traits` are those of the last living incarnation seen, None before and once it has ended.
    `left`: what is left of one that has ended.
    """

    process: Process
    clients: int | None = None
    identity: Identity | None = None
    traits: Traits | None = None
    why: str = ""
    left: Left | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """The incarnation found last, and when its GPU was looked for."""

    found: Found
    traits: Traits
    looked: float  # when for what it opens only while it loads: a GPU, peers of --rpc
    hidden: bool = False  # its environment can't be read
    unsaid: bool = False  # nor can what its supervisor puts there
    ended: bool = False


class ProcessProbe:
    """Finds and watches the process behind one url. Raises ValueError for a url that is none.

    Reads /proc in a thread of its own, one look at a time: reads of a process that is stuck in the kernel can
    hang. Then the outcome is TIMEOUT, and PENDING for as long as that read goes on.

    UNSUPPORTED: there is no such process, or it can't be told (`why`). GONE: the one that was watched has
    ended, with state Z where its parent has not reaped it yet; looking for the next goes on.
    """

    def __init__(
        self,
        *,
        url: str,
        process_name: str = "llama-server",
        supervisor: Supervisor | None = None,
        pid_file: Path | None = None,
        timeout: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        name = supervisor.name if supervisor is not None else None
        self._wanted = Wanted(places.parse(url), process_name, name, pid_file)
        self._supervisor = supervisor
        self._timeout = timeout
        self._clock = clock
        self._worker = Worker("process")
        self._resolver = Worker("resolver")
        self._reader = Reader()
        self._known: _Known | None = None
        self._expected: Identity | None = None
        self._group: Group | None = None

    def expect(self, identity: Identity) -> None:
        """The incarnation that was watched last, before this program began: its end is news, too."""
        self._expected = identity

    async def look(self) -> ProcessFacts:
        """The process as it is now."""
        known, place = self._known, self._wanted.place
        addresses = places.always_here(place)
        if addresses is None:
            try:
                addresses = await self._resolver.run(partial(places.look_up, place), self._timeout)
            except (StillBusyError, TimeoutError, OSError):
                return _nothing(f"{place.host} can't be looked up")
            if not addresses:
                return _nothing(f"{place.host} is not this machine")
        why = await self._ask_supervisor() if known is None or known.ended else ""
        try:
            self._known, facts = await self._worker.run(
                partial(self._look, known, self._expected, self._group, addresses), self._timeout
            )
            self._expected = None
        except StillBusyError:
            return _unread(Outcome.PENDING, known)
        except TimeoutError:
            return _unread(Outcome.TIMEOUT, known)
        except (OSError, ValueError):
            return _unread(Outcome.ERROR, known)
        facts = await self._without_a_new_one(facts)
        if self._known is not None and self._known.hidden:
            facts = await self._learn_from_unit(self._known, facts)
        return replace(facts, why=why) if why and facts.why else facts

    async def _without_a_new_one(self, facts: ProcessFacts) -> ProcessFacts:
        """Nothing is said to be left where a main process was started meanwhile: it may be among them."""
        if facts.left is None or not facts.left.processes or self._supervisor is None:
            return facts
        state = await self._supervisor.show(timeout=self._timeout)
        known = self._group.main_pid if self._group is not None else None
        return facts if state.main_pid in (None, known) else replace(facts, left=None)

    async def _ask_supervisor(self) -> str:
        """Learn the server's cgroup; why not, where the supervisor can't say."""
        if self._supervisor is None:
            return ""
        state = await self._supervisor.show(timeout=self._timeout)
        if state.unit.outcome is not Outcome.OK:
            return f"{self._supervisor.name}: {state.why}"
        if state.unit.load == "not-found":
            return f"{self._supervisor.name} is not known on this machine"
        if state.control_group is not None or state.main_pid is not None:
            self._group = Group(state.control_group, state.main_pid)
        return ""

    async def _learn_from_unit(self, known: _Known, facts: ProcessFacts) -> ProcessFacts:
        """The traits once more, with what the supervisor puts into an environment that we may not read."""
        said = None
        if self._supervisor is not None:
            said = await self._supervisor.environment(traits.VARIABLES, timeout=self._timeout)
        learned = known.traits
        if said is not None:
            try:
                learned = await self._worker.run(partial(_traits, known.found.identity, said), self._timeout)
            except (StillBusyError, TimeoutError, OSError, ValueError):
                return facts  # tried again at the next look
        self._known = replace(known, traits=learned, hidden=False, unsaid=said is None)
        return replace(facts, traits=learned)

    def _look(
        self,
        known: _Known | None,
        expected: Identity | None,
        group: Group | None,
        addresses: frozenset[bytes],
    ) -> tuple[_Known | None, ProcessFacts]:
        """The blocking part. What is known is handed in and back, as a late look must change nothing."""
        door = finding.look_at_door(self._wanted.place, addresses)
        if known is None and expected is not None:
            known = self._meet_again(expected)
        process = self._reader.read(known.found.identity) if known is not None else None
        if known is not None and process is not None:
            if process.outcome is Outcome.GONE:
                known = replace(known, ended=True)
            elif _is_still_it(known.found, door):
                return self._seen(known, process, door)
        try:
            found = finding.find(self._wanted, door, group)
            if known is None or known.found.identity != found.identity:
                _refuse_leftover(known, found)
                known = self._meet(found)
            return self._seen(replace(known, found=found), self._reader.read(found.identity), door)
        except NotFoundError as error:
            if known is None or process is None or not known.ended:
                return None, _nothing(str(error), door.clients)
            left = remains.of(known.found, group, door)
            return known, ProcessFacts(process, door.clients, why=str(error), left=left)

    def _meet_again(self, identity: Identity) -> _Known:
        """One that was watched before; whether it lives still is for the next look at it to tell."""
        found = Found(identity, frozenset())
        try:
            return self._meet(found)
        except NotFoundError:
            return _Known(found, traits.UNKNOWN, self._clock(), ended=True)

    def _meet(self, found: Found) -> _Known:
        """The first look at an incarnation."""
        try:
            with ProcessFolder(found.identity.pid) as folder:
                said = folder.environment()
                return _Known(found, traits.read(folder, said), self._clock(), hidden=said is None)
        except ProcessLookupError as error:
            raise NotFoundError(f"pid {found.identity.pid} ended while it was looked at") from error

    def _seen(self, known: _Known, process: Process, door: Door) -> tuple[_Known, ProcessFacts]:
        if process.outcome is Outcome.GONE:
            return replace(known, ended=True), ProcessFacts(process, door.clients, why="it has just ended")
        known = self._look_again(known)
        return known, ProcessFacts(process, door.clients, known.found.identity, known.traits)

    def _look_again(self, known: _Known) -> _Known:
        """For what can't be told, or not yet, from how it was started."""
        now, was = self._clock(), known.traits
        unsure = known.unsaid and not was.rpc
        if (was.uses_gpu and not unsure) or now - known.looked < _RECHECK:
            return known
        with contextlib.suppress(ProcessLookupError), ProcessFolder(known.found.identity.pid) as folder:
            gpu = was.uses_gpu or traits.uses_gpu(folder)
            # While it waits for peers it is as still as a wedged one.
            rpc = was.rpc or (unsure and sockets.dials(folder.users()))
            known = replace(known, traits=replace(was, uses_gpu=gpu, rpc=rpc))
        return replace(known, looked=now)


def _is_still_it(found: Found, door: Door) -> bool:
    """Whether nobody else has come to the url's end since. One that listens no more is still the server."""
    if not door.listening:
        return True
    return bool(door.listening & found.sockets)


def _traits(identity: Identity, said: dict[str, str]) -> Traits:
    with ProcessFolder(identity.pid) as folder:
        return traits.read(folder, said)


def _refuse_leftover(ended: _Known | None, found: Found) -> None:
    """A socket outlives its server in its forks, as an aborting one makes: such a fork is no new server."""
    if ended is not None and found.sockets & ended.found.sockets:
        raise NotFoundError(f"{finding.describe(found.identity.pid)} is left of the server that has ended")


def _nothing(why: str, clients: int | None = None) -> ProcessFacts:
    return ProcessFacts(Process(Outcome.UNSUPPORTED), clients, why=why)


def _unread(outcome: Outcome, known: _Known | None) -> ProcessFacts:
    """What can be said while /proc can't be read."""
    why = "/proc does not answer"
    if known is None or known.ended:
        return ProcessFacts(Process(outcome), why=why)
    identity = known.found.identity
    process = Process(outcome, identity.pid, identity.start_ticks)
    return ProcessFacts(process, identity=identity, traits=known.traits, why=why)
