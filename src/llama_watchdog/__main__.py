"""`python -m llama_watchdog` is `llama-watchdog`."""

import sys

from llama_watchdog.cli import main

sys.exit(main())
