"""The pure half: facts in, verdicts and actions out.

Nothing here does I/O, reads a clock, logs or knows asyncio; time comes in with each observation. So every
judgement can be replayed from a trace, fuzzed, and tested in virtual time.
"""
