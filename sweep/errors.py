"""Errors of the service, on top of the tree in trainables/errors.py.

Misuse
├── NameTaken       a sweep of this name has a different definition, which the message shows
├── AlreadyRunning  another driver works on this sweep
└── OtherVersion    a sweep's arms were trained by another training version
"""

from __future__ import annotations

from trainables.errors import Misuse


class NameTaken(Misuse):
    """The name belongs to a sweep with a different definition."""


class AlreadyRunning(Misuse):
    """Another driver works on this sweep."""


class OtherVersion(Misuse):
    """The arms of a sweep are of another training version: under their names nothing is found."""
