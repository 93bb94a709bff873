"""`python -m llama_watchdog.simulator`: the command line of the simulated llama-server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from typing import NoReturn

from llama_watchdog.core.policy import parse_duration
from llama_watchdog.simulator.config import ServerConfig
from llama_watchdog.simulator.faults import OF_PROCESSES, Fault
from llama_watchdog.simulator.formats import FORMATS
from llama_watchdog.simulator.server import Options, SimulatedServer

_DEFAULTS = ServerConfig()
# Flags of llama-server that change nothing here, so that a command line can be pasted: name and arity.
_IGNORED: dict[tuple[str, ...], int] = {
    ("-m", "--model"): 1,
    ("-a", "--alias"): 1,
    ("-ub", "--ubatch-size"): 1,
    ("-tb", "--threads-batch"): 1,
    ("-ngl", "--gpu-layers", "--n-gpu-layers"): 1,
    ("-fa", "--flash-attn"): 1,
    ("-n", "--predict", "--n-predict"): 1,
    ("--threads-http",): 1,
    ("--timeout", "-to"): 1,
    ("--jinja",): 0,
    ("--mlock",): 0,
    ("--no-mmap",): 0,
    ("--no-warmup",): 0,
    ("--no-webui",): 0,
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, exit code 2."""
        self.exit(2, f"simulator: {message}\n")


def parse_options(arguments: Sequence[str]) -> Options:
    """The options of a command line. Raises SystemExit(2), after one line, for one that cannot be used."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if (given.after or given.after_tokens is not None) and given.fault is Fault.NONE:
        parser.error("--after and --after-tokens need a --fault")
    load_fault = given.fault in (Fault.LOAD_HANG, Fault.LOAD_SPIN)
    form = FORMATS[given.format]
    config = replace(
        form.config(),
        slots=given.slots or given.parallel,
        context=given.ctx_size,
        batch_size=given.batch_size,
        prefill_rate=given.prefill_rate,
        decode_rate=given.decode_rate,
        endpoint_slots=not given.no_slots,
        endpoint_metrics=given.metrics,
        load_seconds=given.load_seconds or (1.0 if load_fault else 0.0),
        sleep_idle_seconds=given.sleep_idle_seconds,
        second_sigterm_hangs=given.second_sigterm == "hangs",
        threads=max(given.threads, 1),
    )
    return Options(
        config=config,
        form=form,
        host=given.host,
        port=given.port,
        unix_socket=given.unix_socket,
        api_key=given.api_key,
        threads=given.threads,
        fault=given.fault,
        after=given.after,
        after_tokens=given.after_tokens,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m llama_watchdog.simulator",
        description="A llama-server that misbehaves on demand, with nothing behind it.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=_number(int, 0, 65535), default=8080, help="0: any free one; it is printed")
    add("--unix-socket", metavar="PATH", help="listen there instead")
    add("--format", choices=sorted(FORMATS), default="b11669", help="whose answers to give")
    # llama-server's own --slots takes no number: it switches the endpoint on, as it is here.
    add("--slots", type=_number(int, 1, 256), nargs="?", metavar="N", help="how many slots")
    add("-np", "--parallel", type=_number(int, 1, 256), default=_DEFAULTS.slots, metavar="N")
    add("-c", "--ctx-size", type=_number(int, 2, 1 << 30), default=_DEFAULTS.context, metavar="N")
    add("-b", "--batch-size", type=_number(int, 1, 1 << 30), default=_DEFAULTS.batch_size, metavar="N")
    add("--prefill-rate", type=_number(float, 0.001, 1e6), default=_DEFAULTS.prefill_rate, help="tokens/s")
    add("--decode-rate", type=_number(float, 0.001, 1e4), default=_DEFAULTS.decode_rate, help="tokens/s")
    add("--load-seconds", type=_duration, default=0.0)
    add("--sleep-idle-seconds", type=_duration)
    add("-t", "--threads", type=_number(int, 0, 64), default=1, help="that compute; 0: only pretend to")
    add("--api-key")
    add("--metrics", action="store_true")
    add("--no-slots", action="store_true")
    add("--second-sigterm", choices=("exits", "hangs"), default="exits")
    add("--fault", type=_fault, default=Fault.NONE, help=", ".join(OF_PROCESSES))
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--after", type=_duration, default=0.0, metavar="SECONDS", help="when it begins")
    when.add_argument("--after-tokens", type=_number(int, 0, 1 << 53), metavar="N")
    for names, arity in _IGNORED.items():
        if arity:
            add(*names, help=argparse.SUPPRESS)
        else:
            add(*names, action="store_true", help=argparse.SUPPRESS)
    return parser


def _number(kind: type[int] | type[float], least: float, most: float) -> Callable[[str], float]:
    """A number within bounds, for argparse, which shows the function's name in its errors."""

    def number(text: str) -> float:
        value = kind(text)
        if not (isfinite(value) and least <= value <= most):
            raise argparse.ArgumentTypeError(f"{text} is not between {least:g} and {most:g}")
        return value

    return number


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _fault(text: str) -> Fault:
    if text not in OF_PROCESSES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of: {', '.join(OF_PROCESSES)}")
    return Fault(text)


def main() -> NoReturn:
    """Run until something ends it; exit code 2, and one line, where it cannot begin."""
    try:
        server = SimulatedServer(parse_options(sys.argv[1:]))
    except OSError as error:
        sys.stderr.write(f"simulator: {error}\n")
        raise SystemExit(2) from None
    server.run()


if __name__ == "__main__":
    main()
