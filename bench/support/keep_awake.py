"""Keeps one core from idling, in time that nobody else wants; until standard input closes.

A core with nothing to do is halted, in a virtual machine by the hypervisor, and takes some 20 to 40 µs to come back.
Where one call is in flight, client and server wait in turn, and each wait that outlasts the guest's short polling pays
for it: the shorter the servers' work, the less often. That says something of the machine and nothing of the servers.
"""

import os
import sys
import threading


def _spin() -> None:
    while True:
        pass


def main() -> None:
    """Spin on the core that the argument names, in the scheduling class for idle time (sched(7), SCHED_IDLE)."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    threading.Thread(target=_spin, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
