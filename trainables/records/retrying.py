"""Retrying store: transient failures are waited for before they are errors.

A disk that is full for a minute, or a share that is away, must not cost an arm the steps since its
last checkpoint. What waiting does not mend is told at once: a damaged object, a missing permission.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import TypeVar

from trainables.errors import StoreError
from trainables.records.objects import ObjectStore
from trainables.retries import STORE_FIRST_WAIT_S, STORE_LONGEST_WAIT_S, STORE_PATIENCE_S

LASTING = {
    errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL,
    errno.ELOOP,
}  # fmt: skip
T = TypeVar("T")


class RetryingStore(ObjectStore):
    """An ObjectStore that repeats what fails for ``patience_s`` seconds."""

    def __init__(
        self, root: str | os.PathLike[str], *, patience_s: float = STORE_PATIENCE_S
    ) -> None:
        """Name the root; 0 seconds mean one try."""
        super().__init__(root)
        self.patience_s = patience_s

    def _try(self, what: str, action: Callable[[], T]) -> T:
        give_up = time.monotonic() + self.patience_s
        wait_s = STORE_FIRST_WAIT_S
        while True:
            try:
                return super()._try(what, action)
            except StoreError as error:
                if getattr(error.__cause__, "errno", None) in LASTING:
                    raise
                if time.monotonic() + wait_s > give_up:
                    raise StoreError(
                        f"{error} (tried for {self.patience_s:.0f} s). Free some space or bring "
                        "the storage back; nothing that is finished is lost."
                    ) from error
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, STORE_LONGEST_WAIT_S)
