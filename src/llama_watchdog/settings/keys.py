"""Which keys there are, seen as a tree: for telling a misspelt one, and what was probably meant.

What belongs here: everything that looks at a table's keys before its values are looked at.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_origin

from pydantic import BaseModel

from . import targets
from .errors import KeyPath, dotted
from .schema import NOT_KEYS, ServerSettings, Settings

Tree = dict[str, object]
Report = Callable[[KeyPath, str], None]
Kind = Literal["value", "list", "table", "free", "named"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key: a `value`, a `list`, a `table` of `children`, `free` (any names) or `named` tables."""

    kind: Kind
    children: dict[str, Key] = field(default_factory=dict)

    def child(self, name: str) -> Key | None:
        """The key below this one; None for one that is not known."""
        if self.kind == "named":
            return self.children["*"]
        return VALUE if self.kind == "free" else self.children.get(name)


VALUE = Key("value")
_SHAPES: dict[object, Kind] = {dict: "free", tuple: "list"}


def _of(model: type[BaseModel]) -> Key:
    children: dict[str, Key] = {}
    for name, info in model.model_fields.items():
        kind = info.annotation
        if name in NOT_KEYS:
            continue
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            children[name] = _of(kind)
        elif name == "servers":
            children[name] = Key("named", {"*": _of(ServerSettings)})
        else:
            children[name] = Key(_SHAPES.get(get_origin(kind), "value"))
    return Key("table", children)


ROOT = _of(Settings)
ROOT.children["defaults"] = _of(ServerSettings)


def leaves(key: Key = ROOT, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Every key that holds a value, the servers' ones below `servers.*`."""
    if not key.children:
        yield path
    for name, child in key.children.items():
        yield from leaves(child, (*path, name))


def screen(tree: Tree, report: Report, key: Key = ROOT, path: KeyPath = ()) -> Tree:
    """`tree` less what is reported as out of place: unknown keys, values where tables belong."""
    good: Tree = {}
    for name, value in tree.items():
        here, child = (*path, name), key.child(name)
        if child is None:
            report(here, unknown(name, key))
        elif child.kind not in ("table", "named", "free"):
            good[name] = value
        elif not isinstance(value, dict):
            report(here, "must be a table of keys, or in the environment a JSON object")
        elif key.kind == "named" and (problem := _bad_name(name)):
            report(here, problem)
        else:
            good[name] = screen(value, report, child, here)
    return good


def _bad_name(name: str) -> str:
    try:
        targets.server_name(name)
    except ValueError as error:
        return str(error)
    return ""


def unknown(name: str, key: Key, spell: Callable[[KeyPath], str] = dotted) -> str:
    """What to say of an unknown key in the table `key`: the nearest key here, else one further down."""
    if not key.children:
        return "unknown key; what it is below holds a single value"
    near = nearest(name, key)
    if near is not None:
        return f"unknown key; did you mean '{spell(near)}'?"
    return f"unknown key; allowed here: {', '.join(key.children)}"


def nearest(name: str, key: Key) -> KeyPath | None:
    """The known key that `name` most resembles, relative to the table `key`."""
    word = name.lower().replace("-", "_")
    if close := difflib.get_close_matches(word, key.children, n=1):
        return (close[0],)
    below = {path[-1]: path for path in leaves(key) if "*" not in path}
    close = difflib.get_close_matches(word, below, n=1, cutoff=0.8)
    return below[close[0]] if close else None
