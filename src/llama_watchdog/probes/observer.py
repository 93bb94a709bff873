"""All probes of one server: one Observation a poll.

What belongs here is who is asked, and in which order; what it means is core's.
"""

from __future__ import annotations

from dataclasses import replace

from llama_watchdog.clock import WatchClock
from llama_watchdog.core.asking import Ask
from llama_watchdog.core.observation import Gpu, Left, Observation, Outcome, Watch
from llama_watchdog.probes.gpu import GpuProbe
from llama_watchdog.probes.llama_http import HttpFacts, LlamaHttp
from llama_watchdog.probes.process import ProcessFacts, ProcessProbe
from llama_watchdog.supervisors.base import Supervisor


class Observer:
    """The eyes on one server. `watch` is what is known of it so far, better with each look."""

    def __init__(
        self,
        *,
        http: LlamaHttp,
        process: ProcessProbe,
        gpu: GpuProbe,
        supervisor: Supervisor | None,
        watch: Watch,
    ) -> None:
        self.http = http
        self.process = process
        self.gpu = gpu
        self.supervisor = supervisor
        self.watch = watch
        self.why = ""  # nothing is seen of the process
        self.fingerprint: str | None = None  # of model, build and flags; None while they are not known
        self._met = False

    async def look(self, clock: WatchClock, ask: Ask, *, attentive: bool) -> Observation:
        """One poll. `attentive`: ask the supervisor even where the server seems well."""
        moment = clock.moment()
        # The process first: a thread that is just answering us would look as if it had work to do.
        process, gpu = await self._look_at_machine()
        if not self._met:
            self._met = True
            ask = await self._ask_first(ask)
        http = await self.http.look(ask)
        self._learn(http, process)
        observation = Observation(
            at=moment.at,
            suspended=moment.suspended,
            clients=process.clients,
            health=http.health,
            slots=http.slots,
            props=http.props,
            metrics=http.metrics,
            process=process.process,
            gpu=gpu,
            canary=http.canary,
            left=await self._look_for_memory(process),
        )
        if self.supervisor is not None and (attentive or not _well(observation)):
            observation = replace(observation, unit=(await self.supervisor.show()).unit)
        return observation

    async def _ask_first(self, ask: Ask) -> Ask:
        """Without /slots where the server sleeps: nobody knew yet, and GET /slots would wake it."""
        first = await self.http.look(Ask(health=False, slots=False, props=True))
        return replace(ask, slots=False) if first.props.sleeping else ask

    async def _look_at_machine(self) -> tuple[ProcessFacts, Gpu | None]:
        process = await self.process.look()
        if process.identity is None or self.watch.uses_gpu is False:
            return process, None
        return process, await self.gpu.look(process.identity.pid)

    async def _look_for_memory(self, process: ProcessFacts) -> Left | None:
        """What is left of the server, GPU memory too, which a driver gives back after the process's end."""
        left, pid = process.left, process.process.pid
        if left is None or pid is None or self.watch.uses_gpu is False:
            return left
        return replace(left, gpu=await self.gpu.holds(pid))

    def _learn(self, http: HttpFacts, process: ProcessFacts) -> None:
        self.why = process.why
        if http.props.outcome is Outcome.OK and http.props.build:
            self.watch = replace(self.watch, build=http.props.build)
        traits = process.traits
        model = traits.model if traits is not None else http.props.model
        if model is not None:
            flags = (traits.batch_size, traits.compute_threads, traits.rpc) if traits is not None else ()
            self.fingerprint = " ".join(map(str, (model, self.watch.build, *flags)))
        if traits is not None:
            self.watch = replace(
                self.watch,
                batch_size=traits.batch_size,
                compute_threads=traits.compute_threads,
                uses_gpu=traits.uses_gpu,
                rpc=traits.rpc,
                can_sleep=traits.can_sleep,
            )

    async def aclose(self) -> None:
        """Give up what is in flight."""
        await self.http.aclose()


def _well(observation: Observation) -> bool:
    """Whether whatever was asked was answered, by a process that is there."""
    asked = (observation.health, observation.slots, observation.process)
    return all(part is None or part.outcome in (Outcome.OK, Outcome.SKIPPED) for part in asked)
