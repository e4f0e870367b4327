"""List of a cluster's jobs from its job server, without Ray's client.

That client takes a second to import; the list is one GET of Ray's REST interface for jobs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

from trainables.plain import Json

TIMEOUT_S = 30.0  # of one request
SWEEP, ROOT = "sweep", "storage"  # of a job's metadata
READER = "reader-"  # what the jobs are called that run sweep/cli/reader.py
OVER = ("STOPPED", "SUCCEEDED", "FAILED")


@dataclass(frozen=True)
class Job:
    """One job as the cluster knows it."""

    id: str
    state: str  # PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED
    sweep: str  # that it drives; empty: none
    storage: str  # the root that sweep was submitted with; empty: the cluster's own
    started_ms: int
    ended_ms: int  # 0: it has not
    message: str

    @property
    def is_over(self) -> bool:
        """True when it has ended."""
        return self.state in OVER

    @property
    def is_reader(self) -> bool:
        """True for a job that answers laptops, or did."""
        return self.id.startswith(READER) and not self.sweep  # which may be called so

    @classmethod
    def from_details(cls, details: Mapping[str, Json]) -> Job:
        """A job that a client submitted, from the fields of Ray's JobDetails."""
        metadata = details.get("metadata") or {}
        return cls(
            id=details["submission_id"],
            state=str(details["status"]),
            sweep=metadata.get(SWEEP, ""),
            storage=metadata.get(ROOT, ""),
            started_ms=details.get("start_time") or 0,
            ended_ms=details.get("end_time") or 0,
            message=details.get("message") or "",
        )


def listed(port: int, token: str | None) -> list[Job]:
    """Every job that clients submitted, from the job server at a port of this machine's loopback.

    Empty where that does not answer as expected: Ray's client would say why. No proxy is asked.
    """
    server = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        server.request("GET", "/api/jobs/", headers=headers)
        every = json.loads(server.getresponse().read())
        return [Job.from_details(details) for details in every if details["type"] == "SUBMISSION"]
    except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return []
    finally:
        server.close()
