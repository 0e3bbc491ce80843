"""What is to be known of a task before it is submitted: figures, and what they mean in words.

Pure: knows rows, lengths, scores and times, and nothing of how they came about.
"""

from .costs import Costs, Speeds, estimate_costs
from .diagnoses import diagnose
from .lengths import LengthCount, Lengths
from .other_columns import OtherColumn, better_columns
from .outcomes import Outcome, Samples, summarise
from .problem import Problem
from .references import ReferenceCount, References, reference_counts
from .report import Report
from .timed import Timings, timed
from .variance import ZeroVariance, zero_variance

__all__ = [
    "Costs",
    "LengthCount",
    "Lengths",
    "OtherColumn",
    "Outcome",
    "Problem",
    "ReferenceCount",
    "References",
    "Report",
    "Samples",
    "Speeds",
    "Timings",
    "ZeroVariance",
    "better_columns",
    "diagnose",
    "estimate_costs",
    "reference_counts",
    "summarise",
    "timed",
    "zero_variance",
]
