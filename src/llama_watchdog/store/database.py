"""One SQLite file: made, opened, checked, and set aside where it is damaged.

Everything here blocks and is called from a worker's thread, one call at a time.

Journal: a rollback journal, truncated after each transaction. Not a WAL, because its index is a mapped file:
a disk that fails under a mapping ends the process by SIGBUS, one that hangs can stop its other threads too.
Truncated rather than deleted, because then the journal is made once, not in each transaction.

Two users: the CLI writes as root what a service under a user of its own must read and write afterwards.
SQLite, as root, gives a journal that it makes the owner and mode of its database (findCreateFileMode and
robustFchown in its os_unix.c), and we give the database the owner of the directory before it has its name. So
whichever of the two comes first, or is killed in the middle, the other goes on.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

VERSION = 1  # of the tables; in user_version
_WORDS = {
    sqlite3.SQLITE_BUSY: "another process keeps it locked",
    sqlite3.SQLITE_CANTOPEN: "it can't be opened",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_READONLY: "it may not be written",
}


class StateError(Exception):
    """Something could not be kept or read; says why in one line."""


class _DamagedError(Exception):
    """The file is no database, or not one of ours."""


class Database:
    """The file at `path` with exactly `tables` (their CREATE statements).

    `durable`: a commit waits until the disk has it. Otherwise it is in the page cache when it returns, where
    no SIGKILL reaches it. `patience`: seconds to wait for another process's lock. `make_directory`: whether
    a missing directory is made.
    """

    def __init__(
        self,
        path: Path,
        tables: tuple[str, ...],
        *,
        durable: bool,
        patience: float,
        make_directory: bool = True,
    ) -> None:
        self.path = path.absolute()
        self.opened = 0  # how often; another number means another connection, perhaps to another file
        self.set_aside: Path | None = None  # where a damaged file went, until somebody has said so
        self._tables = tables
        self._durable = durable
        self._patience = patience
        self._make_directory = make_directory
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None

    def run(self, call: Callable[[sqlite3.Connection], T], *, write: bool) -> T:
        """What `call` returns, in a transaction of its own if it writes. Raises StateError."""
        try:
            return self._run(call, write)
        except _DamagedError:
            self._put_aside()
        try:
            return self._run(call, write)
        except _DamagedError as error:
            raise StateError("it is damaged as soon as it is made") from error

    def close(self) -> None:
        """Let go of the file; the next call opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _run(self, call: Callable[[sqlite3.Connection], T], write: bool) -> T:
        try:
            connection = self._connected()
            if write:
                # Not deferred: of two that have read and go on to write, one would fail at once.
                connection.execute("BEGIN IMMEDIATE")
            result = call(connection)
            if write:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # above it, SQLite's finer distinctions
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise _DamagedError from error
            raise StateError(self._reason(code) or str(error)) from error
        except OSError as error:
            self.close()
            raise StateError(error.strerror or str(error)) from error
        except MemoryError as error:
            self.close()
            raise StateError("no memory is left") from error
        except BaseException:
            self.close()
            raise
        return result

    def _reason(self, code: int) -> str | None:
        if code == sqlite3.SQLITE_CANTOPEN and not os.access(self.path, os.R_OK):
            return "no right to read it"
        return _WORDS.get(code)

    def _connected(self) -> sqlite3.Connection:
        """The connection to the file that has the name at present: it may have been deleted or set aside."""
        inode = self._look()
        if self._connection is not None and inode == self._inode:
            return self._connection
        self.close()
        if inode is None:
            self._create()
            inode = self._look()
        self._inode = inode
        # mode=rw: SQLite itself never makes the file. Without the right to write, it opens it for reading.
        connection = self._connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw",
            uri=True,
            timeout=self._patience,
            isolation_level=None,
            check_same_thread=False,  # each call has a thread of its own, but one at a time
        )
        # A damaged text is one for the reader to refuse, not one to stumble over.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        # First of all: a file of a newer version is not touched, not even its journal mode.
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise StateError(f"a newer llama-watchdog wrote it (version {version}; this one knows {VERSION})")
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA synchronous = FULL" if self._durable else "PRAGMA synchronous = OFF")
        self._check_tables(connection)
        self.opened += 1
        return connection

    def _look(self) -> tuple[int, int] | None:
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return None
        # The directory may belong to another user: root follows no link of his, and waits at no pipe.
        if not stat.S_ISREG(status.st_mode):
            raise StateError("it is not a regular file")
        return status.st_dev, status.st_ino

    def _create(self) -> None:
        """An empty file, which is a valid database; made beside and linked: it never has a wrong owner."""
        directory = self.path.parent
        if self._make_directory:
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        elif not directory.is_dir():
            raise StateError("no watchdog keeps its state there: that directory does not exist")
        beside = self.path.with_name(f"{self.path.name}.new-{threading.get_native_id()}")
        beside.unlink(missing_ok=True)
        made = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(made, 0o600)  # whatever the umask
            if os.geteuid() == 0:
                owner = directory.stat()
                with contextlib.suppress(PermissionError):  # a root without CAP_CHOWN
                    os.fchown(made, owner.st_uid, owner.st_gid)
        finally:
            os.close(made)
        try:  # unlike a rename, a link never replaces what another process has just made
            self.path.hardlink_to(beside)
        except FileExistsError:
            pass
        except OSError:  # a filesystem without hard links
            beside.rename(self.path)
        beside.unlink(missing_ok=True)

    def _check_tables(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have been first. Tables without a version are nobody's that we know.
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and not self._found(connection):
                for table in self._tables:
                    connection.execute(table)
                connection.execute(f"PRAGMA user_version = {VERSION}")
                version = VERSION
            connection.execute("COMMIT")
        if version != VERSION or self._found(connection) != set(self._tables):
            self.close()
            raise _DamagedError

    def _found(self, connection: sqlite3.Connection) -> set[str]:
        """SQLite keeps the statements as they were written."""
        return {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}

    def _put_aside(self) -> None:
        """Rename the damaged file, over an earlier such one; with its journal, which a repair may need."""
        aside = self.path.with_name(f"{self.path.name}.damaged")
        journal = self.path.with_name(f"{self.path.name}-journal")
        try:
            if self._look() != self._inode:  # another process did it meanwhile
                return
            with contextlib.suppress(FileNotFoundError):
                journal.replace(aside.with_name(f"{aside.name}-journal"))
            self.path.replace(aside)
        except OSError as error:
            raise StateError(f"it is damaged, and can't be set aside: {error.strerror}") from error
        self.set_aside = aside
