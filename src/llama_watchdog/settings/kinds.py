"""The kinds of values that a key can hold: durations, flags, choices, paths, secrets.

What belongs here: types for the tables in schema.py. Each is checked before pydantic looks at it, and raises
ValueError with what is allowed; those of secrets never repeat the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import BeforeValidator, SecretStr

from llama_watchdog.core.policy import Rung, parse_duration

from . import targets
from .errors import shown

_LONGEST = 365 * 86400.0  # a year; beyond it a duration is a slip of the pen
_FLAGS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")  # a token of RFC 9110
_PRINTABLE = re.compile(r"[ -~]*")

Metrics = Literal["auto", "on", "off"]
Via = Literal["auto", "systemd", "container", "command", "child", "none"]
Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]
T = TypeVar("T")


def _duration(least: float = 0.0, *, zero: bool = False, why: str = "") -> BeforeValidator:
    def check(value: object) -> float:
        try:
            seconds = parse_duration(value)
        except (ValueError, OverflowError):  # OverflowError: an integer that no float holds
            raise ValueError(f"{shown(value)} is no duration: use 250ms, 30s, 5m, 1h or seconds") from None
        if seconds < least:
            raise ValueError(f"{shown(value)} is too short: it must be {least * 1000:.0f}ms or more{why}")
        if seconds == 0 and not zero:
            raise ValueError(f"{shown(value)} is too short: it must be longer than 0")
        if seconds > _LONGEST:
            raise ValueError(f"{shown(value)} is too long: it may be 365d at most")
        return seconds

    return BeforeValidator(check)


def _count(least: int, most: int) -> BeforeValidator:
    def check(value: object) -> int:
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"{shown(value)} is not allowed: use a whole number from {least} to {most}")
        return value

    return BeforeValidator(check)


def _factor(least: float, most: float) -> BeforeValidator:
    def check(value: object) -> float:
        try:
            number = float(value) if isinstance(value, str | int | float) else float("nan")
        except (ValueError, OverflowError):
            number = float("nan")
        if isinstance(value, bool) or not least <= number <= most:
            raise ValueError(f"{shown(value)} is not allowed: use a number from {least:g} to {most:g}")
        return number

    return BeforeValidator(check)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
    if known is None:
        raise ValueError(f"{shown(value)} is not allowed: use true or false")
    return known


def _choice(kind: object) -> BeforeValidator:
    allowed = get_args(kind)

    def check(value: object) -> object:
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in allowed:
            raise ValueError(f"{shown(value)} is not allowed: use one of {', '.join(allowed)}")
        return word

    return BeforeValidator(check)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text in quotes, not {shown(value)}")  # noqa: TRY004 - pydantic collects these
    return value


def _named(check: Callable[[str], str]) -> BeforeValidator:
    """Text that `check` accepts; empty means none."""
    return BeforeValidator(lambda value: check(text) if (text := _text(value)) else text)


def _always(check: Callable[[str], str]) -> BeforeValidator:
    return BeforeValidator(lambda value: check(_text(value)))


def _path(value: object) -> Path | None:
    text = str(value) if isinstance(value, Path) else _text(value)
    if not text:
        return None
    if not text.startswith("/") or "\0" in text:
        raise ValueError(f"{shown(text)} is not allowed: use an absolute path")
    return Path(text)


def _items(value: object, example: str) -> list[str]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list, such as {example}")  # noqa: TRY004 - pydantic collects these
    if not all(isinstance(item, str) and item and "\0" not in item for item in value):
        raise ValueError(f"must hold nothing but texts, none of them empty, such as {example}")
    return list(value)


def _ladder(value: object) -> tuple[Rung, ...]:
    example = '["cancel", "sigterm", "sigterm", "sigkill"]'
    words = _items(value, example)
    for word in words:
        if word not in set(Rung):
            raise ValueError(f"{shown(word)} is no rung: use {', '.join(Rung)}")
    if not 1 <= len(words) <= 16:
        raise ValueError(f"must have 1 to 16 rungs, such as {example}")
    return tuple(Rung(word) for word in words)


def _secret(value: object) -> SecretStr | None:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or not _PRINTABLE.fullmatch(text):
        raise ValueError("must be one line of printable ASCII text in quotes")
    return SecretStr(text) if text else None


def _webhook(value: object) -> SecretStr | None:
    secret = _secret(value)
    if secret is not None and not re.match(r"https?://[^/\s]", secret.get_secret_value(), re.IGNORECASE):
        raise ValueError("must begin with http:// or https://")
    return secret


def _secrets(value: object) -> tuple[SecretStr, ...]:
    return tuple(SecretStr(item) for item in _items(value, '["ntfy://ntfy.sh/topic"]'))


def _headers(value: object) -> dict[str, SecretStr]:
    if not isinstance(value, dict):
        raise ValueError('must be a table, such as { "X-Tenant" = "chat" }')  # noqa: TRY004 - pydantic collects these
    for name, text in value.items():
        if not _HEADER.fullmatch(name):
            raise ValueError(f"{shown(name)} is no header's name: use letters, digits and '-'")
        if not isinstance(text, str) or not _PRINTABLE.fullmatch(text):
            raise ValueError(f"the header {shown(name)} must be one line of printable ASCII text")
    return {name: SecretStr(text) for name, text in value.items()}


Seconds = Annotated[float, _duration()]
Pause = Annotated[float, _duration(zero=True)]
Interval = Annotated[float, _duration(0.25, why=", for asking more often disturbs the server")]
Confirmations = Annotated[int, _count(1, 1000)]
Restarts = Annotated[int, _count(0, 1000)]
Factor = Annotated[float, _factor(1, 1000)]
Flag = Annotated[bool, BeforeValidator(_flag)]
MetricsChoice = Annotated[Metrics, _choice(Metrics)]
ViaChoice = Annotated[Via, _choice(Via)]
LevelChoice = Annotated[Level, _choice(Level)]
FormatChoice = Annotated[Format, _choice(Format)]
Ladder = Annotated[tuple[Rung, ...], BeforeValidator(_ladder)]
Command = Annotated[
    tuple[str, ...], BeforeValidator(lambda v: tuple(_items(v, '["docker", "restart", "llama"]')))
]
Commands = Annotated[
    tuple[str, ...], BeforeValidator(lambda v: tuple(_items(v, '["/usr/local/bin/notify"]')))
]
FilePath = Annotated[Path | None, BeforeValidator(_path)]
Directory = Annotated[Path, BeforeValidator(_path)]
Secret = Annotated[SecretStr | None, BeforeValidator(_secret)]
Webhook = Annotated[SecretStr | None, BeforeValidator(_webhook)]
Secrets = Annotated[tuple[SecretStr, ...], BeforeValidator(_secrets)]
Headers = Annotated[dict[str, SecretStr], BeforeValidator(_headers)]
Url = Annotated[str, _always(targets.url)]
ProcessName = Annotated[str, _always(targets.process_name)]
UnitName = Annotated[str, _named(targets.unit)]
ContainerName = Annotated[str, _named(targets.container)]
Listen = Annotated[str, _named(targets.listen)]
