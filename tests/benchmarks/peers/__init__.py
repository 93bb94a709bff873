"""llama-watchdog beside what people use for the same: monit, and a `curl` loop in a shell script.

All of them watch one and the same server at the same time, and none of them really acts: a situation is
played once, and the first thing that each would have done is timed. `python -m tests.benchmarks.peers`.
"""
