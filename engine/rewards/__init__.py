"""Reward functions (graders): what scores a trajectory's completion.

`parse_graders` reads a person's list, `grade` applies it. None means ungraded and is never 0.
"""

from .grader import Grader, PureGrader, ServiceGrader, is_pure
from .grading import Grade, grade, grade_purely
from .registry import GRADERS, catalogue, dump_graders, grader_digest, parse_graders
from .services import Sample, Secret, Services

__all__ = [
    "GRADERS",
    "Grade",
    "Grader",
    "PureGrader",
    "Sample",
    "Secret",
    "ServiceGrader",
    "Services",
    "catalogue",
    "dump_graders",
    "grade",
    "grade_purely",
    "grader_digest",
    "is_pure",
    "parse_graders",
]
