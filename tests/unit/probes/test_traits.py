"""What a server's command line, environment and open files say of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from llama_watchdog.probes import traits
from llama_watchdog.probes.procfs import ProcessFolder
from llama_watchdog.probes.traits import Traits


def started(
    root: Path, *arguments: str, environment: Mapping[str, str] | None = None, opened: tuple[str, ...] = ()
) -> ProcessFolder:
    """A process folder with our own pid, as the kernel is asked for its CPUs."""
    folder = root / str(os.getpid())
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_bytes(
        b"".join(a.encode() + b"\0" for a in ("/usr/bin/llama-server", *arguments))
    )
    if environment is not None:
        words = (f"{name}={value}".encode() + b"\0" for name, value in environment.items())
        (folder / "environ").write_bytes(b"".join(words))
    for number, target in enumerate(opened):
        (folder / "fd" / str(number)).symlink_to(target)
    return ProcessFolder(os.getpid(), str(root))


def read(root: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Traits:
    with started(root, *arguments, environment=environment) as folder:
        return traits.read(folder, folder.environment())


def test_without_a_word_it_has_the_defaults(tmp_path: Path) -> None:
    said = read(tmp_path, environment={"PATH": "/bin"})
    assert said.batch_size == 2048
    assert not said.rpc
    assert not said.can_sleep
    assert said.metrics is False
    assert said.model is None
    assert said.uses_gpu is False
    assert said.compute_threads in range(1, len(os.sched_getaffinity(0)) + 1)


def test_flags(tmp_path: Path) -> None:
    said = read(
        tmp_path,
        *("-m", "/models/big.gguf", "-b", "512", "-t", "8", "--rpc", "10.0.0.2:50052", "--metrics"),
        *("--sleep-idle-seconds", "300"),
    )
    assert said == Traits(512, 8, False, rpc=True, can_sleep=True, metrics=True, model="/models/big.gguf")


@pytest.mark.parametrize(
    ("arguments", "batch"),
    [
        (("--batch-size", "256"), 256),
        (("--batch-size=256",), 256),
        (("--batch_size", "256"), 256),
        (("-b", "64", "--batch-size", "256"), 256),
        (("-ub", "256"), 2048),
        (("--batch-size", "many"), 2048),
        (("--batch-size", "-1"), 2048),
        (("--batch-size",), 2048),
        (("--alias", "", "-b", "256"), 256),
        (("-b", "256", "--rpc", ""), 256),
    ],
)
def test_the_forms_of_a_flag(arguments: tuple[str, ...], batch: int, tmp_path: Path) -> None:
    assert read(tmp_path, *arguments).batch_size == batch


def test_variables_are_weaker_than_flags(tmp_path: Path) -> None:
    environment = {
        "LLAMA_ARG_BATCH": "128",
        "LLAMA_ARG_THREADS": "6",
        "LLAMA_ARG_RPC": "peer:50052",
        "LLAMA_ARG_HF_REPO": "org/model:Q4",
        "LLAMA_ARG_ENDPOINT_METRICS": "true",
        "LLAMA_ARG_SLEEP_IDLE_SECONDS": "60",
    }
    said = read(tmp_path, "-t", "3", "--sleep-idle-seconds", "-1", environment=environment)
    assert said == Traits(128, 3, False, rpc=True, can_sleep=False, metrics=True, model="org/model:Q4")


def test_metrics_that_a_hidden_environment_may_switch_on_are_unknown(tmp_path: Path) -> None:
    assert read(tmp_path, environment=None).metrics is None


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [
        (("-t", "8"), 8),
        (("-t", "8", "-tb", "1"), 1),  # a prefill by one thread: one busy thread is work
        (("-t", "1", "-tb", "8"), 1),
        (("-t", "0"), len(os.sched_getaffinity(0))),
        (("-t", "-1"), len(os.sched_getaffinity(0))),
    ],
)
def test_compute_threads(arguments: tuple[str, ...], threads: int, tmp_path: Path) -> None:
    assert read(tmp_path, *arguments).compute_threads == threads


@pytest.mark.parametrize(
    ("device", "gpu"),
    [
        ("/dev/nvidia0", True),
        ("/dev/nvidiactl", True),
        ("/dev/nvidia-uvm", True),
        ("/dev/kfd", True),
        ("/dev/dri/renderD128", True),
        ("/dev/null", False),
        ("/home/me/dev/nvidia0", False),
        ("socket:[12]", False),
    ],
)
def test_an_open_device_is_a_gpu_in_use(device: str, gpu: bool, tmp_path: Path) -> None:
    with started(tmp_path, opened=("/dev/null", device)) as folder:
        assert traits.uses_gpu(folder) is gpu


@pytest.mark.parametrize(("machine", "gpu"), [(True, None), (False, False)])
def test_without_rights_only_a_machine_without_a_gpu_says_no(
    machine: bool,
    gpu: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProcessFolder, "open_files", lambda _: None)
    monkeypatch.setattr(traits, "machine_has_gpu", lambda: machine)
    with ProcessFolder(os.getpid()) as folder:
        assert traits.uses_gpu(folder) is gpu


@pytest.mark.parametrize(
    ("path", "gpu"),
    [
        ("dev/nvidia0", True),
        ("dev/kfd", True),
        ("dev/dri/renderD129", True),
        ("sys/module/nvidia/version", True),  # behind a private /dev
        ("sys/class/drm/renderD128/dev", True),
        ("dev/dri/card0", False),  # a display without a renderer
        ("dev/null", False),
    ],
)
def test_whether_the_machine_has_a_gpu(path: str, gpu: bool, tmp_path: Path) -> None:
    node = tmp_path / path
    node.parent.mkdir(parents=True)
    node.touch()
    assert traits.machine_has_gpu(tmp_path / "dev", tmp_path / "sys") is gpu


def test_the_port_that_it_states(tmp_path: Path) -> None:
    with started(tmp_path, "--port", "8090", environment={"LLAMA_ARG_PORT": "9000"}) as folder:
        assert traits.stated_port(folder) == 8090
        folder_of_environment = folder
        (tmp_path / str(folder.pid) / "cmdline").write_bytes(b"llama-server\0")
        assert traits.stated_port(folder_of_environment) == 9000
        (tmp_path / str(folder.pid) / "environ").unlink()
        assert traits.stated_port(folder) is None
