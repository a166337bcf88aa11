"""Keeps one core from idling while it is told to, in time that nobody else wants; until standard input closes.

A core with nothing to do is halted, in a virtual machine by the hypervisor, and takes some 20 to 40 µs to come back.
Where one call is in flight, client and server wait in turn, and each wait that outlasts the guest's short polling pays
for it: the shorter the servers' work, the less often. That says something of the machine and nothing of the servers.

The argument names the core. Lines of standard input are ``spin`` and ``rest``; each is answered once it is so.
"""

import os
import sys
import threading
from typing import Never


class _Spinner(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.wanted = threading.Event()
        self.spins = threading.Event()
        self.rests = threading.Event()

    def run(self) -> Never:
        while True:
            self.rests.set()
            self.wanted.wait()
            self.rests.clear()
            self.spins.set()
            while self.wanted.is_set():
                pass
            self.spins.clear()


def main() -> None:
    """Do as told, in the scheduling class for idle time (sched(7), SCHED_IDLE)."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    spinner = _Spinner()
    spinner.start()
    for line in sys.stdin:
        if line == "spin\n":
            spinner.wanted.set()
            spinner.spins.wait()
        else:
            spinner.wanted.clear()
            spinner.rests.wait()
        print("done", flush=True)


if __name__ == "__main__":
    main()
