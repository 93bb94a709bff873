"""Records scenes from the real llama-server, as root: `python -m tests.corpus.recording.record [SCENE…]`.

Writes recorded/SCENE.jsonl.gz, and into recorded/moments.json when by its clock what happened. Several scenes
are played side by side; all of them take an hour on two cores.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.corpus.recording import scenes_ends, scenes_machines, scenes_strangers, scenes_wedges, scenes_work
from tests.corpus.recording.scene import SCENES, Scene
from tests.corpus.recording.stage import stage

RECORDED = Path(__file__).parents[1] / "recorded"
MOMENTS = RECORDED / "moments.json"
SIDE_BY_SIDE = 3
# Importing them puts their scenes on the list.
PARTS = (scenes_ends, scenes_machines, scenes_strangers, scenes_wedges, scenes_work)
_writing = threading.Lock()


def record(scene: Scene) -> None:
    """Play one scene, and keep what was recorded of it."""
    with stage(scene.name, interval=scene.interval, config=scene.config, rights=scene.rights) as played:
        scene.play(played)
        played.recording.end()
        RECORDED.mkdir(exist_ok=True)
        played.keep(RECORDED / f"{scene.name}.jsonl.gz")
        with _writing:
            moments = json.loads(MOMENTS.read_text()) if MOMENTS.exists() else {}
            moments[scene.name] = played.marks
            MOMENTS.write_text(json.dumps(dict(sorted(moments.items())), indent=1) + "\n")
        print(f"{scene.name}: {played.recording.polls} polls, {played.marks}", flush=True)  # noqa: T201 - a script


def main(names: list[str]) -> int:
    """Record these scenes, or all."""
    failed = 0
    with ThreadPoolExecutor(SIDE_BY_SIDE) as lanes:
        jobs = {name: lanes.submit(record, SCENES[name]) for name in names or SCENES}
        for name, job in jobs.items():
            if error := job.exception():
                failed += 1
                print(f"{name}: {error!r}", file=sys.stderr, flush=True)  # noqa: T201 - a script
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
