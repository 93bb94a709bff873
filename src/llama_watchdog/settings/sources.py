"""Where settings come from: flags, environment, file, `[defaults]`: layers that know their keys' places.

What belongs here: turning each of them into a tree of keys. pydantic-settings lays the trees over each other.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from .errors import KeyPath, dotted
from .files import CONFIG_VARIABLE, PREFIX
from .keys import ROOT, Key, Tree, screen, unknown

_POSITION = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
_SERVER_FLAGS = frozenset({"url", "unit"})


class _Source(PydanticBaseSettingsSource):
    def __init__(self, settings_cls: type[BaseSettings], tree: Tree) -> None:
        super().__init__(settings_cls)
        self._tree = tree

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[object, str, bool]:  # noqa: ARG002 - its shape
        return self._tree.get(field_name), field_name, False

    def __call__(self) -> Tree:
        return self._tree


@dataclass(slots=True)
class Layer:
    """One source's keys. `where` says for people where a key was set; `problems`: what was wrong so far."""

    where: Callable[[KeyPath], str]
    tree: Tree = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def report(self, path: KeyPath, message: str) -> None:
        """Note a problem with the key at `path`."""
        self.problems.append(f"{self.where(path)}: {message}")

    def source(self, settings_cls: type[BaseSettings]) -> PydanticBaseSettingsSource:
        """This layer as pydantic-settings takes it."""
        return _Source(settings_cls, self.tree)

    def table(self, *path: str) -> Tree:
        """The table at `path`, an empty one where there is none."""
        found: object = self.tree
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def holds(self, path: KeyPath) -> bool:
        """Whether this layer sets the key at `path`."""
        return path[-1] in self.table(*path[:-1])

    def drop(self, path: KeyPath) -> None:
        """Forget the key at `path`, if it is set."""
        self.table(*path[:-1]).pop(path[-1], None)


def toml(path: Path | None, text: str) -> Layer:
    """The keys of a TOML file."""
    layer = Layer(lambda key: f"{path}: {dotted(key)}")
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        layer.problems.append(f"{path}: not TOML: nested too deeply")
    except ValueError as error:  # TOMLDecodeError, and int's own refusal of thousands of digits
        match = _POSITION.fullmatch(str(error))
        line = f":{match[2] or text.count(chr(10)) + 1}" if match else ""
        layer.problems.append(f"{path}{line}: not TOML: {match[1] if match else error}")
    else:
        layer.tree = screen(tree, layer.report)
    return layer


def environment(environ: Mapping[str, str]) -> Layer:
    """The keys set as LLAMA_WATCHDOG_SERVERS__chat__STALL__BLOCKED and the like; only server names mind case.

    A list is JSON or parted by commas, a whole table is JSON. Other names without `__` are not ours.
    """
    names: dict[KeyPath, str] = {}

    def where(path: KeyPath) -> str:
        if path in names:
            return f"environment {names[path]}"
        for known, name in names.items():
            if path[: len(known)] == known:  # set within a whole table's JSON
                return f"environment {name}: {dotted(path)}"
            if known[: len(path)] == path:  # a table, made by this key within it
                return f"environment {name}"
        return f"environment: {dotted(path)}"

    layer = Layer(where)
    ours = [name for name in environ if name.startswith(PREFIX) and name != CONFIG_VARIABLE]
    ours.sort(key=lambda name: (name.count("__"), name))  # whole tables before the single keys within
    for name in ours:
        parts = name.removeprefix(PREFIX).split("__")
        path, key, problem = _resolve(parts)
        if problem and len(parts) == 1:
            continue
        if problem or path in names:
            problem = problem or f"sets the same key as {names[path]}"
            layer.problems.append(f"environment {name}: {problem}")
            continue
        names[path] = name
        table = layer.tree
        for part in path[:-1]:
            below = table.setdefault(part, {})
            table = below if isinstance(below, dict) else {}
        table[path[-1]] = _value(environ[name], key)
    layer.tree = screen(layer.tree, layer.report)
    return layer


def _resolve(parts: list[str]) -> tuple[KeyPath, Key, str]:
    path: KeyPath = ()
    key = ROOT
    for index, part in enumerate(parts):
        name = part if key.kind in ("named", "free") else part.lower()
        child = key.child(name)
        if child is None:
            return path, key, unknown(name, key, partial(_variable, parts[:index]))
        path, key = (*path, name), child
    return path, key, ""


def _variable(before: list[str], key: KeyPath) -> str:
    return PREFIX + "__".join([*before, *(part.upper() for part in key)])


def _value(text: str, key: Key) -> object:
    """What a variable's text stands for; text as it is where it can't stand for what the key takes."""
    if key.kind == "value":
        return text
    if key.kind == "list" and not text.lstrip().startswith("["):
        return [item.strip() for item in text.split(",")] if text.strip() else []
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def flags(overrides: Mapping[str, object], servers: Collection[str]) -> Layer:
    """The keys set on the command line: `url` and `unit` of the only server, others of the top level.

    A flag that is None, or False as `--dry-run` is when it is not given, sets nothing.
    """
    layer = Layer(lambda path: f"--{path[-1].replace('_', '-')}")
    server: Tree = {}
    for name, value in overrides.items():
        if value is None or value is False:
            continue
        if name not in _SERVER_FLAGS:
            layer.tree[name] = value
        elif len(servers) == 1:
            server[name] = value
        else:
            names = ", ".join(servers)
            layer.report((name,), f"is for one server, and {names} are configured: set their {name} there")
    layer.tree = screen(layer.tree, layer.report)
    if server:
        layer.tree["servers"] = dict.fromkeys(servers, server)
    return layer


def defaults(layer: Layer, servers: Collection[str]) -> Layer:
    """The `[defaults]` of a layer, taken out of it, as a layer of their own for each of the servers."""
    table = layer.tree.pop("defaults", {})

    def where(path: KeyPath) -> str:
        return layer.where(("defaults", *path[2:]))

    return Layer(where, {"servers": {name: copy.deepcopy(table) for name in servers}} if table else {})
