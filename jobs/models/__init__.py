"""One file a noun. Rows are written by `jobs.services` only."""

from .base_model import BaseModel
from .dataset import Dataset, DatasetImport
from .event import StreamEvent, StreamHead
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
    "Group",
    "Member",
    "PolicyVersion",
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
