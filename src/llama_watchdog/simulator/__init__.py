"""A llama-server that misbehaves on demand: a pure model, traces of it in virtual time, a real process."""
