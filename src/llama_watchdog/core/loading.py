"""Whether a load makes progress: reads, writes, memory or GPU memory grow. CPU time alone does not count."""

from __future__ import annotations

from llama_watchdog.core.observation import Observation, Outcome

# A hung loader still answers our probes, which allocates a little; a load moves gigabytes.
GROWTH = 1 << 20


class LoadProgress:
    """Follows one load; `moved_at` is when it last made progress."""

    def __init__(self) -> None:
        self.moved_at = 0.0
        self._marks: dict[str, int] = {}

    def restart(self, at: float) -> None:
        """A new load begins."""
        self.moved_at = at
        self._marks.clear()

    def see(self, observation: Observation, at: float) -> None:
        """Take in one poll."""
        process, gpu = observation.process, observation.gpu
        figures: dict[str, int | None] = {}
        if process is not None and process.outcome is Outcome.OK:
            figures = {"read": process.read_bytes, "written": process.write_bytes, "resident": process.rss}
            if process.major_faults is not None:  # each brings a page or more from the disk
                figures["faults"] = process.major_faults * 4096
        if gpu is not None and gpu.outcome is Outcome.OK:
            figures["gpu"] = gpu.memory
        for name, figure in figures.items():
            if figure is None:
                continue
            mark = self._marks.get(name)
            if mark is None:
                self._marks[name] = figure
            elif figure >= mark + GROWTH:
                self._marks[name] = figure
                self.moved_at = at
