"""llama-watchdog as a user installs it, a wheel in a virtual environment, for the Python of the tree.

Belongs here: building the wheel of this checkout, installing it with its unit files, gathering what it
depends on for another Python than the one that runs the tests, and the cached layer of the root that has
those dependencies installed.
The testbed has no network, so everything is fetched outside, by pip as this machine has it set up.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.e2e.ground.llama_root import cache_dir, locked
from tests.e2e.ground.testbed import Testbed

CHECKOUT = Path(__file__).resolve().parents[3]
VENV = "/opt/llama-watchdog"
COMMAND = f"{VENV}/bin/llama-watchdog"
# What is in systemd/, and where it belongs on a machine; drop-ins are installed by those who choose them.
SERVICE_FILES = {
    "llama-watchdog.service": "/etc/systemd/system/llama-watchdog.service",
    "llama-watchdog.conf": "/etc/sysusers.d/llama-watchdog.conf",
    "llama-watchdog.rules": "/etc/polkit-1/rules.d/50-llama-watchdog.rules",
}
# The C libraries that binary wheels are built for; any of these runs on the tree's newer one.
_GLIBC = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34", "manylinux_2_39")


def dependency_layer(tree: Path) -> Path:
    """A layer for `Testbed`: a virtual environment at VENV that lacks nothing but llama-watchdog itself.

    Built where the cache has none for today's dependencies (ten seconds); needs the package registry then.
    """
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    requirements: list[str] = sorted(project["dependencies"])
    version = _python_version(tree)
    key = hashlib.sha256(repr((requirements, version, tree.name)).encode()).hexdigest()[:16]
    layer = cache_dir() / f"venv-{key}"
    with locked(cache_dir()):
        if not layer.is_dir():
            part = layer.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            with tempfile.TemporaryDirectory() as folder:
                wheels = _wheelhouse(Path(folder), requirements, version)
                _install(tree, wheels, requirements, part)
            part.rename(layer)
    return layer


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built into `folder`."""
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(CHECKOUT))
    return next(folder.glob("llama_watchdog-*.whl"))


def install(testbed: Testbed, wheel: Path) -> None:
    """Install the wheel inside, where `dependency_layer` has put everything else."""
    inside = f"/root/{wheel.name}"
    testbed.copy(wheel, inside)
    testbed.run(f"{VENV}/bin/pip", "install", "--quiet", "--no-index", "--no-deps", inside, timeout=120)


def install_service(testbed: Testbed) -> None:
    """The service, its user, and what it may ask of systemd, put where README says."""
    for name, path in SERVICE_FILES.items():
        testbed.copy(CHECKOUT / "systemd" / name, path)
    testbed.run("systemd-sysusers")
    testbed.run("systemctl", "daemon-reload")


def _python_version(tree: Path) -> str:
    """Such as 3.14: of the tree's python3, which is a link to the versioned program."""
    return (tree / "usr/bin/python3").readlink().name.removeprefix("python")


def _wheelhouse(folder: Path, requirements: list[str], version: str) -> Path:
    """Wheels of everything needed, for Python `version`.

    Some dependencies come as source only. They are built first, with all the rest, by the Python that runs
    this; what is pure Python of those then serves the other one too.
    """
    local, target = folder / "local", folder / "target"
    _pip("wheel", "--use-pep517", "--wheel-dir", str(local), *requirements)
    options = ["--only-binary=:all:", "--python-version", version, "--implementation", "cp"]
    options += [f"--platform={glibc}_{platform.machine()}" for glibc in _GLIBC]
    _pip("download", *options, "--find-links", str(local), "--dest", str(target), *requirements)
    return target


def _install(tree: Path, wheels: Path, requirements: list[str], layer: Path) -> None:
    """Install inside a testbed of its own, and take the result out as a layer."""
    with Testbed(tree) as testbed:
        for wheel in wheels.iterdir():
            testbed.copy(wheel, f"/root/wheels/{wheel.name}")
        testbed.run("python3", "-m", "venv", VENV, timeout=120)
        options = ["--quiet", "--no-index", "--find-links", "/root/wheels"]
        testbed.run(f"{VENV}/bin/pip", "install", *options, *requirements, timeout=300)
        with subprocess.Popen(
            testbed.command("tar", "--create", "--directory=/", VENV.lstrip("/")),
            stdout=subprocess.PIPE,
            pass_fds=testbed.namespaces,
        ) as archive:
            unpack = ["tar", "--extract", "--directory", str(layer)]
            subprocess.run(unpack, stdin=archive.stdout, check=True, timeout=120)
        if archive.returncode:
            raise RuntimeError(f"tar inside ended with {archive.returncode}")


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet"], check=True, timeout=900)
