"""How hard the properties are tried: 200 examples each, or 20,000 with LLAMA_WATCHDOG_NIGHTLY=1."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "normal", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", parent=settings.get_profile("normal"), max_examples=20_000)
settings.load_profile("nightly" if os.environ.get("LLAMA_WATCHDOG_NIGHTLY") else "normal")
