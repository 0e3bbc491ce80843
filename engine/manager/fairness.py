"""Start-time fair queueing: who goes next when several have work. Over tenants, then their tasks.

Each dispatch moves its owner's virtual time on by cost / weight, and whose virtual time is least
goes next, so that device-seconds are shared by weight however many tasks a tenant submits and
however long its answers are.

Idle time must not be hoarded: a tenant that comes back would otherwise take every slot until its
virtual time caught up. Textbooks raise a returning flow to the virtual time of the packet in
service, which needs to know who was idle; a snapshot does not say. But among those that always had
work, none can lie further behind than the *start* of the last dispatch of any other (that dispatch
was chosen because it was the least). So raising everybody to the latest such start moves nobody
that waited its turn, and anybody that did not to within one group of the others. (One step where
steps are paced: a dispatch is then a whole step, for whoever has begun one goes on with it.)
Dispatches that passed over somebody who lacked something prove nothing, and their starts are not
kept.

What a group costs is known afterwards, so what was charged is corrected then, and virtual times
move without a dispatch. Starts do not: were they worked out from virtual times, whoever is
corrected upwards would lift all others with it, and owe nothing any more.

One virtual time covers all base models, so shares are of all device-seconds: a tenant that is
served much on one base model waits on another while tenants that had less keep that one busy. But
starts are compared only among those that have work on the same base model: who keeps another one
busy, alone, would soon lift all the rest, and their weights would mean nothing. A tenant that has
work on both does carry its start from one to the other.

Source: Goyal, Vin and Cheng, "Start-time fair queueing", SIGCOMM 1996.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MIN_WEIGHT = 1e-6  # a weight of zero by mistake must not stop the planner for everybody


@dataclass(frozen=True)
class Flow:
    """One that is served: a tenant, or a task among its tenant's."""

    id: str
    virtual_time: float
    weight: float = 1.0
    last_start: float = 0.0  # its virtual time when it was last served as the one furthest back


class VirtualTimes:
    """The virtual times of flows that compete, while one plan is made."""

    def __init__(self, flows: Iterable[Flow], slack: Mapping[str, float]) -> None:
        """slack: by id, the most device-seconds that a flow may be served at once while another
        that has work must wait; flows that are absent from it have no work and take no part."""
        taking_part = [flow for flow in flows if flow.id in slack]
        self._weights = {f.id: max(f.weight, MIN_WEIGHT) for f in taking_part}
        starts = [
            min(f.virtual_time, f.last_start) - slack[f.id] / self._weights[f.id]
            for f in taking_part
        ]
        floor = max(starts, default=0.0)
        self._times = {f.id: max(f.virtual_time, floor) for f in taking_part}
        self._lags = {f.id: f.virtual_time for f in taking_part}
        self._starts = {f.id: f.last_start for f in taking_part}

    def place(self, flow: str) -> tuple[float, float, str]:
        """What to sort flows by: who has had least for its weight goes first. Of several that were
        raised, the one that lay furthest behind: costs are estimates, and where they vary some that
        always had work do fall behind. Ids break ties."""
        return self._times[flow], self._lags[flow], flow

    def charge(self, flow: str, cost: float, is_least: bool = True) -> tuple[float, float]:
        """Move the flow on by a dispatch of `cost` device-seconds. is_least: whether nobody that
        waits stands further back. Returns its new virtual time, and its last start."""
        if is_least:
            self._starts[flow] = self._times[flow]
        self._times[flow] += cost / self._weights[flow]
        self._lags[flow] = self._times[flow]
        return self._times[flow], self._starts[flow]
