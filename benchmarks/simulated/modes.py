"""The schedules that are compared: the planner's policies, and ours beyond the paper."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.manager.policy import POLICIES, SHIPPED, Policy


@dataclass(frozen=True)
class Mode:
    """A policy, and what tasks ask for under it."""

    name: str
    policy: Policy
    max_staleness: int = 0


def _mode(name: str, max_staleness: int = 0, **rules: bool | int) -> Mode:
    return Mode(name, replace(SHIPPED, name=name, **rules), max_staleness)


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        *(Mode(policy.name, policy) for policy in POLICIES.values()),
        _mode("overlap", max_staleness=1),
        _mode("joint_passes", steps_per_pass=4),
        _mode("beyond", max_staleness=1, steps_per_pass=4),
    )
}
# Of the ways beyond the paper, the one whose bars are asked for
BEYOND = "beyond"
