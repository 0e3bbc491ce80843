"""One file a noun. Rows are written by `jobs.services` only."""

from .base_model import BaseModel
from .dataset import Dataset, DatasetImport
from .event import StreamEvent, StreamHead
from .grader import Grader, GraderUse, GraderVersion
from .preflight import Preflight
from .secret import Secret
from .span import Span
from .step import Group, Step
from .task import Task
from .tenant import Member, Tenant, TokenUsage
from .token import TokenLabel
from .user import User
from .version import PolicyVersion
from .worker import Worker

__all__ = [
    "BaseModel",
    "Dataset",
    "DatasetImport",
    "Grader",
    "GraderUse",
    "GraderVersion",
    "Group",
    "Member",
    "PolicyVersion",
    "Preflight",
    "Secret",
    "Span",
    "Step",
    "StreamEvent",
    "StreamHead",
    "Task",
    "Tenant",
    "TokenLabel",
    "TokenUsage",
    "User",
    "Worker",
]
