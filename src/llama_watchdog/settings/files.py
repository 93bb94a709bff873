"""Where our files are, and how small text files that people name are read.

What belongs here: the places of the configuration and the state, and what can go wrong between a path and
its text, in plain words.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

PREFIX = "LLAMA_WATCHDOG_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
SYSTEM_CONFIG = Path("/etc/llama-watchdog/config.toml")
_CONFIG_BYTES = 1 << 20
_BLOCK = 1 << 16


class UnreadableError(Exception):
    """Why a file's text can't be had, in a few words. `missing`: there is no such file."""

    def __init__(self, why: str, *, missing: bool = False) -> None:
        super().__init__(why)
        self.missing = missing


def read_text(path: Path, limit: int) -> str:
    """The UTF-8 text of a regular file of at most `limit` bytes, without its byte order mark."""
    try:
        # Without O_NONBLOCK, opening a fifo that nobody writes to would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadableError("no such file", missing=True) from None
    except ValueError:  # a NUL in the name
        raise UnreadableError("no file can have this name") from None
    except OSError as error:
        raise UnreadableError(f"can't be read: {error.strerror}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UnreadableError("is a directory" if stat.S_ISDIR(mode) else "is not a regular file")
        data = bytearray()
        while len(data) <= limit and (block := os.read(descriptor, min(_BLOCK, limit + 1 - len(data)))):
            data += block
    except OSError as error:
        raise UnreadableError(f"can't be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise UnreadableError(f"is larger than {limit >> 10} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableError("not UTF-8 text") from None


def find_config(config: Path | None, environ: Mapping[str, str]) -> tuple[Path | None, str]:
    """The configuration file to read, and its text; None where there is none. One that is named must exist.

    Raises UnreadableError, which names the file.
    """
    named = config if config is not None else environ.get(CONFIG_VARIABLE) or None
    candidates = [SYSTEM_CONFIG, *_xdg(environ, "XDG_CONFIG_HOME", ".config", "config.toml")]
    for path in candidates if named is None else [Path(named)]:
        try:
            return path, read_text(path, _CONFIG_BYTES)
        except UnreadableError as error:
            by = f", named by {CONFIG_VARIABLE}" if config is None and named else ""
            if named is not None or not error.missing:
                raise UnreadableError(f"{path}{by}: {error}") from None
    return None, ""


def _xdg(environ: Mapping[str, str], variable: str, below_home: str, *rest: str) -> list[Path]:
    """The user's place for our files; none where it can't be told. Relative ones don't count (XDG)."""
    base = environ.get(variable, "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return []
        base = f"{home}/{below_home}"
    return [Path(base, "llama-watchdog", *rest)]


def state_dir(environ: Mapping[str, str]) -> Path:
    """Where state is kept when the configuration doesn't say."""
    given = environ.get("STATE_DIRECTORY", "").split(":")[0]  # systemd.exec(5): several, parted by colons
    if given.startswith("/"):
        return Path(given)
    users = [] if os.geteuid() == 0 else _xdg(environ, "XDG_STATE_HOME", ".local/state")
    return users[0] if users else Path("/var/lib/llama-watchdog")
