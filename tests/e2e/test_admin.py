"""What dies is brought back, and what its admin stopped is left alone."""

from __future__ import annotations

import time

from tests.e2e.ground.house import SERVER, WATCHDOG, House
from tests.e2e.ground.waiting import stays_true, wait_until

CONFIG = """
[servers.chat]
unit = "llama-server.service"
[servers.chat.probe]
interval = "1s"
"""


def test_a_killed_server_is_back_within_ten_seconds(house: House) -> None:
    """The unit has no Restart=, so that nobody but llama-watchdog brings it back."""
    house.fresh(CONFIG)
    house.wait_for(10, verdict="idle")
    house.systemctl("kill", "--signal=KILL", SERVER)
    killed = time.monotonic()

    wait_until(house.client.serves, 15.0, "the server to serve again")
    assert time.monotonic() - killed < 10.0, house.story()
    assert house.wait_for(5, verdict="down")["reason"] == "gone"
    house.wait_for(5, action="restart", outcome="healed")
    assert house.starts() == 1


def test_a_stopped_server_stays_stopped(house: House) -> None:
    """`systemctl stop` is a person's will; and once the person starts it again, it is watched as before."""
    house.fresh(CONFIG)
    house.wait_for(10, verdict="idle")
    house.systemctl("stop", SERVER)

    stays_true(lambda: house.show(SERVER, "ActiveState") == "inactive", 15.0, "the server is stopped")
    assert house.starts() == 0, house.story()

    house.mark()
    house.start_server()
    house.wait_for(10, verdict="idle")
    house.systemctl("kill", "--signal=KILL", SERVER)
    wait_until(lambda: house.starts() == 2, 10.0, "llama-watchdog to start it")


def test_stopping_a_wedged_server_is_left_to_the_admin(house: House) -> None:
    """A stop that hangs on the wedge is the admin's: the unit ends stopped, and nobody starts it anew."""
    house.testbed.write(f"/run/systemd/system/{SERVER}.d/test.conf", "[Service]\nTimeoutStopSec=4\n")
    house.systemctl("daemon-reload")
    house.fresh(CONFIG)
    house.wait_for(10, verdict="idle")
    house.wedge("block")

    house.systemctl("stop", SERVER)
    stays_true(lambda: house.main_pid() == 0 and house.starts() == 0, 8.0, "the server is stopped")
    house.testbed.run("rm", "-r", f"/run/systemd/system/{SERVER}.d")
    house.systemctl("daemon-reload")
    assert house.show(WATCHDOG, "ActiveState") == "active"
