"""Imports point one way, and the core is pure. Rooms are named as in the file listing."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import llama_watchdog

SOURCE = Path(llama_watchdog.__file__).parent
# Each room may import from itself and from what stands here.
MAY_IMPORT = {
    "core": set(),
    "settings": {"core"},
    "log": {"core"},
    "clock": set(),
    "subprocesses": {"privileges"},
    "privileges": set(),
    "signals": {"core"},
    "worker": set(),
    "lock": set(),
    "init": set(),
    "supervisors": {"core", "signals", "subprocesses"},
    "probes": {"core", "clock", "supervisors", "worker"},
    "actions": {"core", "signals", "supervisors", "subprocesses"},
    "notify": {"core"},
    "simulator": {"core"},
    "store": {"core", "worker"},
    "parts": {"core", "settings", "supervisors", "probes", "actions"},
    "memory": {"core", "clock", "store", "log", ""},
    "watching": {
        *("core", "clock", "settings", "store", "lock", "log", "memory", "parts", "probes", "actions"),
        "",
    },
    "doctor": {
        *("core", "clock", "settings", "supervisors", "probes", "actions", "parts"),
        *("signals", "lock", "privileges", "subprocesses", "worker"),
    },
    "daemon": {
        *(
            "core",
            "clock",
            "settings",
            "store",
            "log",
            "notify",
            "parts",
            "watching",
            "supervisors",
            "doctor",
        ),
        "",
    },
    "executing": {"core", "daemon", "watching", "settings", "supervisors"},
    "cli": {
        *(
            "core",
            "clock",
            "settings",
            "log",
            "daemon",
            "watching",
            "executing",
            "parts",
            "probes",
            "actions",
        ),
        *("store", "lock", "supervisors", "notify", "doctor", "privileges", "signals", "worker", ""),
        *("simulator",),
    },
    "__main__": {"cli", "init"},
    "": set(),
}
# What the core may not touch although it is in the standard library: the world, and its clocks.
IMPURE = {
    "asyncio",
    "datetime",
    "logging",
    "os",
    "pathlib",
    "random",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "threading",
    "time",
}


def room(path: Path) -> str:
    """The room of a module: its folder, or its own name at the top."""
    parts = path.relative_to(SOURCE).parts
    return "" if parts == ("__init__.py",) else parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The modules that a file imports, relative ones resolved."""
    found: set[str] = set()
    package = ["llama_watchdog", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            found |= {module} if module != "llama_watchdog" else {f"{module}.{a.name}" for a in node.names}
    return found


MODULES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("llama_watchdog.")}
    rooms = {"" if name == "__version__" else name for name in ours}
    assert rooms <= MAY_IMPORT[room(path)] | {room(path)}


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) == "core"], ids=lambda path: path.name)
def test_the_core_is_pure(path: Path) -> None:
    outside = {name.split(".")[0] for name in imports(path)} - {"llama_watchdog"}
    assert outside <= set(sys.stdlib_module_names) - IMPURE


def test_every_room_has_its_rule() -> None:
    assert {room(path) for path in MODULES} <= MAY_IMPORT.keys()
