"""End of a process with the one that started it."""

from __future__ import annotations

import os
import threading
import time

LOOK_EVERY_S = 1.0


def end_with_parent(parent: int) -> None:
    """Have this process end at once when its parent, a process id, is gone, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY_S)
        os._exit(1)  # sys.exit would end this thread alone

    threading.Thread(target=watch, daemon=True).start()
