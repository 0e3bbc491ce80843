"""Start-time fair queueing over tenants: who goes next when all of them have work.

Each dispatch moves its tenant's virtual time on by cost / weight, and the tenant whose virtual time
is least goes next, so that tokens are shared by weight however many tasks a tenant submits.

Idle time must not be hoarded: a tenant that comes back would otherwise take every slot until its
virtual time caught up. Textbooks raise a returning flow to the virtual time of the packet in
service, which needs to know who was idle; a snapshot does not say. But among tenants that always
had work, none can lie further behind than the *start* of the last dispatch of any other (that
dispatch was chosen because it was the least). So raising everybody to the latest such start moves
no tenant that waited its turn, and any tenant that did not to within one group of the others.

One virtual time covers all base models, so shares are of all rollout tokens: a tenant that is
served much on one base model waits on another while tenants that had less keep that one busy.

Source: Goyal, Vin and Cheng, "Start-time fair queueing", SIGCOMM 1996.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .snapshot import TenantView

MIN_WEIGHT = 1e-6  # a weight of zero by mistake must not stop the planner for everybody


class VirtualTimes:
    """The tenants' virtual times while one plan is made."""

    def __init__(self, tenants: Iterable[TenantView], group_costs: Mapping[str, int]) -> None:
        """group_costs: by tenant id, the largest group cost among its tasks; tenants that are
        absent from it have no tasks and take no part."""
        taking_part = [tenant for tenant in tenants if tenant.id in group_costs]
        self._weights = {t.id: max(t.weight, MIN_WEIGHT) for t in taking_part}
        starts = [t.virtual_time - group_costs[t.id] / self._weights[t.id] for t in taking_part]
        floor = max(starts, default=0.0)
        self._times = {t.id: max(t.virtual_time, floor) for t in taking_part}

    def __getitem__(self, tenant: str) -> float:
        return self._times[tenant]

    def next_of(self, tenants: Iterable[str]) -> str:
        """The tenant that has had least for its weight; ids break ties."""
        return min(tenants, key=lambda tenant: (self._times[tenant], tenant))

    def charge(self, tenant: str, cost: int) -> float:
        """Move the tenant on by a dispatch of `cost` tokens; returns its new virtual time."""
        self._times[tenant] += cost / self._weights[tenant]
        return self._times[tenant]
