"""Tenants' Python, run where it can reach nothing: WebAssembly in a sealed child process.

Full CPython is a WebAssembly component that imports nothing, so there is no file, socket, clock or
process for it to reach. The component runs in a child process that has given up its own rights.
`Sandboxes` is all that others use.
"""

from .limits import Limits
from .results import Execution, Problem, Score, Trial, Value
from .sandboxes import Sandboxes

__all__ = ["Execution", "Limits", "Problem", "Sandboxes", "Score", "Trial", "Value"]
