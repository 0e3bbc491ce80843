"""Celery entry points, thin: each hands over to a service or to the engine.

Importing this package imports no torch; a rollout or training worker loads it when it starts
(`hosting`), by its kind in MARLAAS_WORKER_KIND.
"""

from . import chores, environment, errands, hosting, planning, preflight, rollout, training

__all__ = [
    "chores",
    "environment",
    "errands",
    "hosting",
    "planning",
    "preflight",
    "rollout",
    "training",
]
