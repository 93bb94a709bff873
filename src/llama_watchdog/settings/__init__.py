"""The configuration: from flags, environment and TOML to frozen settings, or to every problem in one line.

What belongs here: `load`, and what others use of this package. The tables and their defaults are in
schema.py, the kinds of values in kinds.py, where they come from in sources.py.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from . import files, sources
from .errors import ConfigError, ConflictError, KeyPath, dotted
from .keys import Tree
from .schema import ServerSettings, Settings
from .sources import Layer

__all__ = ["ConfigError", "ServerSettings", "Settings", "load"]

Problem = tuple[tuple[KeyPath, ...], str]  # the keys to blame, the first of them first, and what is wrong


def load(
    config: Path | None = None,
    *,
    overrides: Mapping[str, object] = {},
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """The settings in force: `overrides` (the flags), then the environment, then the file, then the defaults.

    Overrides that are None or False are flags not given. Reading again is all there is to a reload.
    Raises ConfigError with all that is wrong, one line each.
    """
    problems: list[str] = []
    path, text = None, ""
    try:
        path, text = files.find_config(config, environ)
    except files.UnreadableError as error:
        problems.append(str(error))
    file, env = sources.toml(path, text), sources.environment(environ)
    _refuse_other_case(env, file)
    servers = list(dict.fromkeys([*file.table("servers"), *env.table("servers")])) or ["default"]
    flags = sources.flags(overrides, servers)
    given = [flags, env, file, *(sources.defaults(layer, servers) for layer in (env, file))]
    for layer in given:
        problems += layer.problems
        if layer.tree.get("state_dir") == "":
            layer.drop(("state_dir",))
    settings = _settle(given, _ours(path, servers, environ), problems)
    if settings is None or problems:
        raise ConfigError(*problems)
    return settings


def _refuse_other_case(env: Layer, file: Layer) -> None:
    """A variable for CHAT where the file has `chat` is a slip that would start a second watch of it."""
    spelt = {name.lower(): name for name in file.table("servers")}
    for name in list(env.table("servers")):
        known = spelt.get(name.lower(), name)
        if known != name and name not in file.table("servers"):
            env.report(("servers", name), f"no server '{name}' in the file; did you mean '{known}'?")
            env.drop(("servers", name))


def _ours(path: Path | None, servers: Collection[str], environ: Mapping[str, str]) -> Layer:
    """What is always there, below all that was given."""
    tree: Tree = {
        "source": path,
        "state_dir": files.state_dir(environ),
        "servers": {name: {"name": name} for name in servers},
    }
    return Layer(lambda key: f"configuration: {dotted(key)}", tree)


def _settle(given: list[Layer], ours: Layer, problems: list[str]) -> Settings | None:
    """The settings of all layers. What is wrong is noted and left out, to see what else is wrong behind."""
    layers = [*given, ours]
    left_out: set[KeyPath] = set()
    while True:
        try:
            return Settings(layers=layers)  # type: ignore[call-arg]  # for settings_customise_sources
        except ValidationError as error:
            found = list(_problems(error))
        dropped = False
        for keys, message in found:
            spoilt = next((key for key in keys if key in left_out), None)
            if spoilt is None:  # else it is but an echo of a problem already noted
                problems.append(f"{_where(keys, given)}: {message}")
            # Of two servers with one target one goes as a whole: without its url it would clash anew.
            blamed = [(spoilt or keys[0])[:2]] if len({key[:2] for key in keys}) > 1 else keys
            culprit = next((key for key in blamed if any(layer.holds(key) for layer in layers)), None)
            if culprit is not None:
                dropped = True
                left_out.add(culprit)
                for layer in layers:
                    layer.drop(culprit)
        if not dropped:
            return None


def _problems(error: ValidationError) -> Iterator[Problem]:
    for item in error.errors(include_url=False, include_input=False):
        table = tuple(str(part) for part in item["loc"])
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, ConflictError):
            for keys, message in cause.conflicts:
                yield tuple((*table, *key) for key in keys), message
        else:
            yield (table,), str(cause) if isinstance(cause, ValueError) else "is not allowed here"


def _where(keys: tuple[KeyPath, ...], given: list[Layer]) -> str:
    """The place of the first of `keys` that anybody set, else of the table that it would be in."""
    places = [*keys, *(keys[0][:length] for length in range(len(keys[0]) - 1, 0, -1))]
    for key in places:
        for layer in given:
            if layer.holds(key):
                return layer.where(key)
    return f"configuration: {dotted(keys[0])}"
