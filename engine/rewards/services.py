"""What reward functions and tools may use beyond their own arithmetic, and what they are shown.

One `Services` is made for each task from what the process shares: a reward function never opens a
connection or starts a process of its own. None stands for what this process does not have; who
needs it then fails with a GraderError that says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import GraderError

if TYPE_CHECKING:
    from ..environments.corpus import Corpora
    from ..environments.mediawiki import MediaWiki
    from ..outbound import Outbound
    from ..sandbox import Sandboxes
    from .workers import Workers


@dataclass(frozen=True)
class Sample:
    """What is graded: the policy's last answer, and where it came from."""

    completion: str  # text of the last turn
    row: Mapping[str, Any]  # of the dataset, `messages` among its columns
    transcript: str = ""  # everything after the prompt, observations included
    # Counts of the episode: num_turns, num_tool_calls, num_tool_errors. Absent: nobody counted.
    episode: Mapping[str, int] = field(default_factory=dict)
    environment_score: float | None = None  # that the environment itself gives, if it gives one
    environment_error: str = ""  # why it gives none

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The prompt as a chat."""
        found: Sequence[Mapping[str, Any]] = self.row.get("messages", ())
        return found


@dataclass(frozen=True)
class Secret:
    """A tenant's own credential. It is sent to the host that it was saved for and nowhere else."""

    name: str
    host: str  # as in a URL: name, and port where it is not 443
    value: str = field(repr=False)


@dataclass(frozen=True)
class Services:
    """Of one task. Concurrent use from one event loop is what all of it is made for."""

    tenant: str = ""  # key of the tenant: limits and sandboxes are its own
    sandboxes: Sandboxes | None = None  # tenants' Python
    outbound: Outbound | None = None  # HTTP to addresses that tenants name
    workers: Workers | None = None  # processes with a hard time limit, for libraries of ours
    corpora: Corpora | None = None  # tenants' documents, indexed for search
    mediawiki: MediaWiki | None = None  # sites such as Wikipedia
    secrets: Mapping[str, Secret] = field(default_factory=dict)  # by name
    episode: str = ""  # of which a tool is called; what it keeps is kept under this
    # Tools that the tenant's episodes may run at once
    tool_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(64))

    def need(self, what: str) -> Any:
        """A service by its name. Raises: GraderError if this process has none."""
        found = getattr(self, what)
        if found is None:
            raise GraderError(f"python_grader_server_error: this process has no {what}")
        return found
