"""Errors of the service, on top of the tree in trainables/errors.py.

Misuse
├── NameTaken       a sweep of this name has a different definition, which the message shows
├── AlreadyRunning  another driver runs this sweep
├── OtherVersion    a sweep's arms were trained by another training version
└── CodeDiffers     some arms of a sweep were trained by other code than this
"""

from __future__ import annotations

from trainables.errors import Misuse


class NameTaken(Misuse):
    """The name belongs to a sweep with a different definition."""


class AlreadyRunning(Misuse):
    """Another driver runs this sweep."""


class OtherVersion(Misuse):
    """The arms of a sweep are of another training version, which gives them other signatures."""


class CodeDiffers(Misuse):
    """Arms that a sweep would be paired with were trained by other code than the next ones."""
