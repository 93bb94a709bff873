"""Scenes in which the watch sees little of the real server."""

from __future__ import annotations

import shutil

from tests.corpus.recording.forwarder import Forwarder
from tests.corpus.recording.scene import scene
from tests.corpus.recording.stage import Stage
from tests.e2e.ground.llama_client import prompt_of
from tests.e2e.ground.llama_root import MODEL, llama_root


@scene("no-slots", interval="2s")
def no_slots(stage: Stage) -> None:
    """`/slots` is switched off: blind, through prefill, decoding and idleness."""
    stage.start("--no-slots")
    stage.watch(3)
    stage.client.start(prompt_of(1500), 60).wait(120.0)
    stage.rest(20.0)


@scene("no-key", interval="2s")
def no_key(stage: Stage) -> None:
    """It wants a key that the watch was not given."""
    stage.start("--api-key", "sesame")
    stage.watch(3)
    stage.rest(40.0)


@scene("proxy", interval="2s")
def proxy(stage: Stage) -> None:
    """The url's port is a proxy's, which is still while the server behind it is at its prefill."""
    behind = stage.start().port
    stage.servers[-1].port = behind
    door = Forwarder(behind)
    stage.watch(3, port=door.port)
    stage.client.start(prompt_of(2600), 40).wait(200.0)
    stage.polls(3)
    door.close()


@scene("router", interval="2s")
def router(stage: Stage) -> None:
    """The parent of a router: its /slots wants to be told of which model."""
    mnt = stage.folder / "mnt"
    mnt.mkdir(exist_ok=True)
    shutil.copyfile(llama_root() / MODEL.lstrip("/"), mnt / "small.gguf")
    stage.start("--models-dir", "/mnt", model="")
    stage.watch(3)
    body = {"model": "small", "prompt": prompt_of(700), "n_predict": 200, "ignore_eos": True}
    stage.client.request("POST", "/v1/completions", body, timeout=200.0)
    stage.rest(10.0)
