"""What outlives a watchdog killed at any instant: two SQLite files in its state directory.

What belongs here: keeping and finding again, whatever the disk does. What is kept, its owners make and read:
a standing and a pace are the core's. Two files, since each has other writers and another price:

    file      | holds                         | written by              | a power cut may cost
    ----------+-------------------------------+-------------------------+-------------------------------
    state.db  | standings of incidents, paces | the daemon, often       | all of it: never waits for the
              |                               |                         | disk to have it (`Store`)
    wishes.db | pauses, releases              | the CLI, and the daemon | nothing (`WishWriter`, `Wishes`)
              |                               | when one is fulfilled   |

Nothing here logs: what is to be said goes to the `complain` that was handed in.
"""

from llama_watchdog.store.database import StateError
from llama_watchdog.store.memory import Remembered, Store
from llama_watchdog.store.wishes import Pause, Wish, Wishes, WishWriter

__all__ = ["Pause", "Remembered", "StateError", "Store", "Wish", "WishWriter", "Wishes"]
