"""How the planner schedules: the shipped way, the paper's, and what both are measured against.

A policy only switches rules of the one planner on and off, so that a baseline differs from what is
shipped in the rule that it is named for and in nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """Rules of the planner; the defaults are the paper's schedule (arXiv:2605.08527)."""

    name: str
    max_tasks: int = 0  # tasks of all tenants under way at once; 0: no limit
    # Nobody's next step opens before everybody's present one is trained, and nothing trains before
    # everybody's batch is whole.
    has_barrier: bool = False
    # Whether tokens are generated while a pass trains. Otherwise nothing is sent to the engines
    # meanwhile, and they are expected to pause.
    overlaps_training: bool = True
    is_multi_lora: bool = True  # otherwise the engines get groups of one task at a time
    paces: bool = False  # steps that would only wait in the trainer's line begin later (pacing.py)
    adapts: bool = False  # sequences in flight are limited by feedback (concurrency.py)
    steps_per_pass: int = 1  # ready steps that a trainer takes together at most


SEQUENTIAL = Policy("sequential", max_tasks=1)
SYNCHRONOUS = Policy("synchronous", has_barrier=True)
PAPER = Policy("marlaas")
WITHOUT_ASYNCHRONY = Policy("without_asynchrony", overlaps_training=False)
WITHOUT_MULTI_LORA = Policy("without_multi_lora", is_multi_lora=False)
SHIPPED = Policy("shipped", paces=True, adapts=True)

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        SEQUENTIAL,
        SYNCHRONOUS,
        PAPER,
        WITHOUT_ASYNCHRONY,
        WITHOUT_MULTI_LORA,
        SHIPPED,
    )
}
