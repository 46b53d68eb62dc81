"""Processes that do not outlive the one that started them."""

import ctypes
import os
import signal
import sys
import threading
import time

SECONDS_BETWEEN_LOOKS = 1.0


def end_with_parent(parent: int) -> None:
    """End this process, without a word, when `parent`, which started it, is gone, however it went.

    Whoever waits for a dead process in the middle of a computation that both share would wait for half an hour.
    """
    if sys.platform.startswith("linux"):
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before the system could know
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        threading.Thread(target=watch, args=(parent,), name="berdiff-parent", daemon=True).start()


def watch(parent: int) -> None:
    """As the system does it on Linux: look again and again."""
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os.kill(os.getpid(), signal.SIGKILL)
