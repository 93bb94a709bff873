"""What can be seen of one server: each probe's answer at one look, and what its absence costs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from llama_watchdog.core.observation import HANGS, Gpu, Health, Metrics, Observation, Outcome, Props, Slots
from llama_watchdog.doctor import remedies
from llama_watchdog.doctor.finding import Finding, Works, missing, ok, unknown
from llama_watchdog.doctor.look import Look
from llama_watchdog.settings import ServerSettings
from llama_watchdog.supervisors.base import Supervised, Supervisor
from llama_watchdog.supervisors.systemctl import UnitState
from llama_watchdog.supervisors.systemd import SystemdUnit

_NVIDIA = (Path("/sys/module/nvidia"), Path("/dev/nvidiactl"))
_BOOTED = Path("/run/systemd/system")  # sd_booted(3)
_STACKS = ("sys_ptrace", "dac_read_search")
_COST = {
    "/metrics": ": what waits behind idle slots can't be seen",
    "/props": ": what it runs, and whether it sleeps, can't be seen",
}
_SWITCH = {
    "/slots": "llama-server: without --no-slots (LLAMA_ARG_ENDPOINT_SLOTS=1)",
    "/metrics": "llama-server: --metrics (LLAMA_ARG_ENDPOINT_METRICS=1)",
}
DOWN = "the server is down"


def answers(server: ServerSettings, seen: Observation) -> list[Finding]:
    """/health, /slots, /props, and /metrics where it is asked."""
    found = [
        _answer("health", server, seen.health),
        _answer("slots", server, seen.slots),
        _answer("props", server, seen.props, matters=False),
    ]
    if server.probe.metrics != "off":
        found.append(_answer("metrics", server, seen.metrics, matters=server.probe.metrics == "on"))
    return [finding for finding in found if finding is not None]


def _answer(
    check: str, server: ServerSettings, part: Health | Slots | Props | Metrics | None, *, matters: bool = True
) -> Finding | None:
    if part is None:
        return None
    name, path, outcome = server.name, f"/{check}", part.outcome

    def lost(text: str, remedy: str) -> Finding:
        text += _COST.get(path, "")
        return missing(check, name, text, remedy, matters=matters, watch_says=check == "slots")

    if outcome is Outcome.OK:
        seconds = getattr(part, "seconds", 0.0)
        return ok(check, name, f"answered in {seconds * 1000:.0f} ms" if seconds else "answered")
    if outcome is Outcome.UNAUTHORIZED:
        known = server.api_key is not None or server.api_key_file is not None
        line = 'api_key_file = "FILE"' + (", with a key that it knows" if known else "")
        text = f"{path} refuses the key" if known else f"{path} wants an API key"
        return lost(text, remedies.key(name, line))
    if outcome is Outcome.UNSUPPORTED:
        return lost(f"{path} is switched off", _SWITCH.get(path, ""))
    if outcome in (Outcome.MALFORMED, Outcome.UNREACHABLE):
        line = remedies.key(name, 'url = "http://HOST:PORT", where llama-server itself listens')
        said = "answers with something else" if outcome is Outcome.MALFORMED else "can't be reached"
        return lost(f"{path} {said}", line)
    return unknown(check, name, _why_unknown(path, outcome), matters=matters)


def _why_unknown(path: str, outcome: Outcome) -> str:
    if outcome is Outcome.REFUSED:
        return DOWN
    if outcome in HANGS:
        return f"{path} has not answered yet: busy with a long step, or wedged"
    if outcome is Outcome.LOADING:
        return "it loads its model"
    if outcome is Outcome.SKIPPED:
        return f"not asked: it sleeps, and {path} would wake it"
    return f"{path} fails"


def process(
    server: ServerSettings, look: Look, asked: Supervisor | None, state: Supervised | None
) -> list[Finding]:
    """The process, its reads and writes, its open files, and the GPU."""
    seen, name = look.seen, server.name
    part = seen.process
    if part is not None and part.outcome is Outcome.OK:
        found = [ok("process", name, f"pid {part.pid}, {len(part.threads or ())} threads")]
        if part.threads is None:
            lost = "its threads can't be listed: a thread that spins can't be told from one that works"
            found = [missing("process", name, lost, "the kernel or a sandbox hides /proc/PID/task")]
        return [
            *found,
            _io(name, readable=part.read_bytes is not None),
            _files(name, look.files),
            _gpu(name, look),
        ]
    if look.down:
        return [unknown("process", name, f"{DOWN}: {look.why}")]
    if part is not None and part.outcome in HANGS:
        return [unknown("process", name, "/proc does not answer")]
    text = f"can't be told ({look.why or 'not seen'}): it gets the longest budgets, and no signals"
    mute = asked is not None and state is not None and state.unit.outcome is not Outcome.OK
    remedy = to_be_asked(asked) if mute else where_it_is(server, look)
    return [missing("process", name, text, remedy, watch_says=True)]


def where_it_is(server: ServerSettings, look: Look | None) -> str:
    """The line that tells which process is the server."""
    if look is not None and look.why.endswith("is not this machine"):
        return "run llama-watchdog on the machine of the server"
    if look is not None and look.unit:
        return remedies.key(server.name, f'unit = "{look.unit}"')
    keys = 'unit = "UNIT.service" (or container = "NAME", or pid_file = "FILE")'
    return remedies.key(server.name, f'{keys}; process_name = "NAME", where llama-server goes by another')


def to_be_asked(asked: Supervisor | None) -> str:
    """What it takes for a supervisor to answer; "" where its own words say it."""
    if not isinstance(asked, SystemdUnit):
        return ""
    if not _BOOTED.exists():
        return (
            "no systemd runs this machine: container, restart.command or llama-watchdog exec in place of unit"
        )
    # The system bus doesn't know a user that exists only while its service runs.
    return remedies.own_unit("User=llama-watchdog", "DynamicUser=no")


def _io(name: str, *, readable: bool) -> Finding:
    if readable:
        return ok("io", name, "its reads and writes can be seen")
    text = (
        "its reads and writes can't be seen: reading shows only by page faults and by waiting for the disk, "
        "writing not at all, and a load's progress by its memory"
    )
    return missing("io", name, text, remedies.capability(*_STACKS), matters=False, watch_says=True)


def _files(name: str, files: bool | None) -> Finding:
    if files is None:
        return unknown("fd", name, "its open files could not be looked at", matters=False)
    if files:
        return ok("fd", name, "its open files can be seen")
    text = "its open files can't be seen: it is told by its user, its command line and who runs it"
    return missing("fd", name, text, remedies.capability(*_STACKS), matters=False, watch_says=True)


def _gpu(name: str, look: Look) -> Finding:
    gpu: Gpu | None = look.seen.gpu
    if look.uses_gpu is False:
        return ok("gpu", name, "it uses none")
    if look.uses_gpu is None:
        text = "whether it uses a GPU can't be seen, so `unknown` counts in place of `blocked`"
        return missing("gpu", name, text, remedies.capability(*_STACKS), watch_says=True)
    if gpu is not None and gpu.outcome is Outcome.OK:
        whose = "its own load" if gpu.own is not None else "the device's load"
        return ok("gpu", name, f"{whose} can be seen")
    if gpu is not None and gpu.outcome in HANGS:
        return unknown("gpu", name, "the GPU's driver does not answer")
    text = (
        "its GPU's load can't be seen, so `unknown` counts in place of `blocked`, and nothing is `spinning`"
    )
    return missing("gpu", name, text, _gpu_remedy())


def _gpu_remedy() -> str:
    if not any(path.exists() for path in _NVIDIA):
        return "this driver tells no load: amdgpu, i915, xe and NVIDIA's do"
    if importlib.util.find_spec("pynvml") is None:
        return "pip install 'llama-watchdog[nvidia]'"
    return remedies.own_unit("DeviceAllow=char-nvidia* rw, and no PrivateDevices=")


def supervisor(server: ServerSettings, asked: Supervisor, state: Supervised, look: Look | None) -> Finding:
    """Who runs it, and how that says it is."""
    name = server.name
    if state.unit.outcome is not Outcome.OK:
        hangs = state.unit.outcome in HANGS
        text = f"{asked.name} can't be asked for: {state.why}"
        return (
            unknown("supervisor", name, text)
            if hangs
            else missing("supervisor", name, text, to_be_asked(asked))
        )
    if state.unit.load == "masked":
        return missing("supervisor", name, f"{asked.name} is masked", f"systemctl unmask {asked.name}")
    if state.unit.load != "loaded":
        return missing("supervisor", name, f"{asked.name} is {state.unit.load}", where_it_is(server, look))
    text = f"{asked.name} is {state.unit.active}"
    if isinstance(state, UnitState) and state.restart:
        text += f", with Restart={state.restart}"
    return ok("supervisor", name, text)


def unseen(server: ServerSettings, why: str) -> Finding:
    """In place of all of these, where the look itself has failed."""
    return Finding("process", server.name, Works.UNKNOWN, why)
