"""What a watch sees of a simulated server in virtual time."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from llama_watchdog.core.asking import Ask
from llama_watchdog.core.observation import Observation, Outcome
from llama_watchdog.simulator.config import Compute, ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.formats import FORMATS
from llama_watchdog.simulator.happenings import (
    Happening,
    Leave,
    Request,
    Restart,
    Sigkill,
    Sigterm,
    Strike,
    Suspend,
    traffic,
)
from llama_watchdog.simulator.model import ServerModel
from llama_watchdog.simulator.traces import VirtualWatch, Watcher, observe

STEADY = Watcher(jitter=0.0)
LONG = Task(predict=3000)


def watch(
    *happenings: Happening,
    until: float = 100.0,
    config: ServerConfig | None = None,
    watcher: Watcher = STEADY,
    fault: Fault = Fault.NONE,
) -> list[Observation]:
    return list(observe(ServerModel(config, fault=fault), happenings, until=until, watcher=watcher))


def outcomes(observations: list[Observation], part: str = "slots") -> list[Outcome | None]:
    seen = [getattr(observation, part) for observation in observations]
    return [facts.outcome if facts else None for facts in seen]


def decoded(observation: Observation) -> int:
    assert observation.slots is not None
    return sum(slot.decoded or 0 for slot in observation.slots.slots)


def test_a_healthy_server_answers_every_poll() -> None:
    seen = watch(Request(10.0, LONG))
    assert [o.at for o in seen] == [5.0 * i for i in range(20)]
    assert set(outcomes(seen)) == set(outcomes(seen, "health")) == {Outcome.OK}
    assert [o.clients for o in seen[:4]] == [0, 0, 1, 1]
    assert all(decoded(b) > decoded(a) for a, b in pairwise(seen[3:]))
    assert outcomes(seen, "props")[:2] == [Outcome.OK, None]


def test_bodies_carry_nothing_private() -> None:
    """The builds of 2024 show prompts in /slots."""
    form = FORMATS["2024-early"]
    task = Task(predict=3000, text="a secret")
    (seen, *_) = observe(ServerModel(form.config()), [Request(0.0, task)], until=5.0, form=form)
    assert seen.slots is not None
    assert seen.slots.slots[0].task == 0
    assert "secret" not in repr(seen)


def test_polls_come_a_little_late_and_never_drift() -> None:
    seen = list(observe(ServerModel(), until=1000.0, watcher=Watcher(jitter=0.5)))
    late = [o.at - 5.0 * i for i, o in enumerate(seen)]
    assert all(0 <= seconds <= 0.5 for seconds in late)
    assert len(set(late)) > 100


def test_cpu_adds_up_between_polls() -> None:
    """Also while questions hang and polls wait for them: a spinning thread is at one core throughout."""
    config = ServerConfig(answers_mid_step=False)
    seen = watch(Request(3.0, LONG), Strike(12.0, Fault.SPIN), config=config)
    main = [(o.at, o.process.threads[0].cpu) for o in seen if o.process and o.process.threads]
    shares = [(b - a) / (t - s) for (s, a), (t, b) in pairwise(main[4:])]
    assert shares == pytest.approx([1.0] * len(shares), abs=0.01)


def test_a_suspend_shows_in_the_clock_and_nowhere_else() -> None:
    seen = watch(Request(0.0, LONG), Suspend(22.0, 3600.0), until=40.0)
    assert [o.suspended for o in seen] == [0.0] * 5 + [3600.0] + [0.0] * 2
    assert seen[5].at - seen[4].at == 3605.0
    assert decoded(seen[5]) - decoded(seen[4]) == pytest.approx(150, abs=2)


def test_a_restart_is_another_incarnation_that_loads() -> None:
    config = ServerConfig(load_seconds=20.0)
    seen = watch(Request(25.0, LONG), Sigkill(32.0), Restart(52.0), config=config)
    assert outcomes(seen, "health")[0] is Outcome.LOADING
    assert outcomes(seen)[7:10] == [Outcome.REFUSED] * 3
    assert outcomes(seen, "process")[7:10] == [Outcome.GONE] * 3
    assert [o.clients for o in seen[7:10]] == [0, 0, 0]
    assert outcomes(seen)[11:14] == [Outcome.LOADING] * 3
    first, last = seen[0].process, seen[-1].process
    assert first is not None
    assert last is not None
    assert (first.pid, first.start_ticks) != (last.pid, last.start_ticks)
    assert outcomes(seen)[-1] is Outcome.OK


def test_sigterm_on_a_wedged_server_hangs_slots_and_the_second_ends_it() -> None:
    seen = watch(Request(0.0, LONG), Strike(12.0, Fault.BLOCK), Sigterm(32.0), Sigterm(52.0), until=70.0)
    assert outcomes(seen)[3:7] == [Outcome.OK] * 4
    assert outcomes(seen)[7] is Outcome.PENDING
    assert outcomes(seen, "health")[7:10] == [Outcome.OK] * 3
    assert outcomes(seen)[-1] is Outcome.REFUSED


def test_clients_leave_by_themselves_by_name_or_all() -> None:
    impatient = Request(1.0, LONG, leaves_after=7.0)
    alice, bob = Request(1.0, LONG, name="alice"), Request(1.0, LONG, name="bob")
    seen = watch(impatient, alice, bob, Leave(12.0, "bob"), Leave(17.0), until=25.0)
    assert [o.clients for o in seen] == [0, 3, 2, 1, 0]


def test_a_loading_server_takes_no_requests() -> None:
    seen = watch(Request(5.0, LONG), config=ServerConfig(load_seconds=10.0), until=30.0)
    assert [o.clients for o in seen] == [0] * 6


def test_what_is_switched_off_or_locked() -> None:
    off = watch(config=ServerConfig(endpoint_slots=False), until=10.0)
    assert set(outcomes(off)) == {Outcome.UNSUPPORTED}
    locked = watch(watcher=Watcher(has_key=False), until=10.0)
    assert set(outcomes(locked)) == {Outcome.UNAUTHORIZED}
    assert outcomes(locked, "props") == [Outcome.UNAUTHORIZED] * 2
    assert set(outcomes(locked, "health")) == {Outcome.OK}
    metrics = watch(config=ServerConfig(endpoint_metrics=True), until=10.0)
    assert outcomes(metrics, "metrics") == [Outcome.OK] * 2


def test_what_the_watch_may_not_see() -> None:
    blind = watch(watcher=Watcher(sees_process=False, sees_gpu=False), until=5.0)
    assert blind[0].process is not None
    assert blind[0].process.outcome is Outcome.UNSUPPORTED
    assert blind[0].gpu is None
    (half,) = watch(watcher=Watcher(sees_io=False), until=5.0)
    assert half.process is not None
    assert half.process.read_bytes is None
    assert half.process.cpu is not None


def test_a_stopped_process_is_seen_as_such() -> None:
    seen = watch(Request(0.0, LONG), Strike(12.0, Fault.STOPPED), Strike(32.0, Fault.NONE), until=50.0)
    assert [o.process.state for o in seen if o.process][3:7] == ["T"] * 4
    assert outcomes(seen, "health")[3] is Outcome.PENDING
    assert outcomes(seen)[-1] is Outcome.OK
    assert decoded(seen[-1]) > decoded(seen[2])


def test_the_watch_lets_an_idle_server_sleep() -> None:
    config = ServerConfig(sleep_idle_seconds=60.0, load_seconds=5.0)
    seen = watch(Request(200.0), config=config, until=400.0)
    sleeping = [o.props.sleeping for o in seen if o.props]
    assert sleeping[-1]
    assert sleeping.count(True) > 30
    assert Outcome.OK in outcomes(seen)[41:44]
    assert all(o.slots is None for o in seen if o.props and o.props.sleeping)


def test_the_first_line_of_a_trace() -> None:
    config = ServerConfig(compute=Compute.RPC, batch_size=512, threads=2, sleep_idle_seconds=9.0)
    facts = VirtualWatch(ServerModel(config), watcher=Watcher(interval=2.0)).facts
    assert (facts.build, facts.interval, facts.batch_size) == ("b11669-Debian", 2.0, 512)
    assert (facts.uses_gpu, facts.rpc, facts.compute_threads, facts.can_sleep) == (False, True, 2, True)


def test_whoever_acts_in_between_is_obeyed() -> None:
    """The ladder of a watchdog, in virtual time: a cancel that heals."""
    watching = VirtualWatch(
        ServerModel(), [Request(0.0, LONG), Strike(7.0, Fault.FROZEN_UNTIL_CANCEL)], watcher=STEADY
    )
    for _ in range(6):
        seen = watching.poll()
    assert seen.slots is not None
    assert seen.slots.slots[0].processing
    watching.world.happen(Leave(watching.world.now))
    quiet = watching.poll(Ask(health=True, slots=False))
    assert quiet.slots is None
    healed = watching.poll()
    assert healed.slots is not None
    assert not healed.slots.slots[0].processing


def test_traffic_is_reproducible_and_within_bounds() -> None:
    once = list(traffic(until=7200.0, every=60.0, prompt=(5, 50), predict=(1, 9), seed=4))
    assert once == list(traffic(until=7200.0, every=60.0, prompt=(5, 50), predict=(1, 9), seed=4))
    assert 80 < len(once) < 160
    assert all(5 <= r.task.prompt <= 50 and 1 <= r.task.predict <= 9 for r in once)
    assert [r.at for r in once] == sorted(r.at for r in once)


def test_a_day_takes_moments() -> None:
    """24 h polled every 5 s took 1 s of a free core; six hours of it here, with room for slow machines."""
    began = time.process_time()
    count = sum(1 for _ in observe(ServerModel(), traffic(until=21600.0), until=21600.0))
    assert count == 4320
    assert time.process_time() - began < 3.0
