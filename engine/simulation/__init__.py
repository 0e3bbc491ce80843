"""The planner in virtual time: a cluster with faults, and the invariants checked after each event.

Everything that the planner decides on is simulated (database, Redis, workers, people), so that the
shipped `engine.manager.plan` runs unchanged for hours of virtual time in a second. It finds faults
of decisions and of the protocol between the parts; it says nothing of models, SQL or sockets.
"""

from .runner import Report, SimulationFailure, run
from .scenario import Settings

__all__ = ["Report", "Settings", "SimulationFailure", "run"]
