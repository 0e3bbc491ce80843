"""Reward functions (graders): what scores a trajectory's completion.

`parse_graders` reads a person's list, `grade` applies it. None means ungraded and is never 0.
"""

from .grading import Grade, grade
from .registry import GRADERS, Grader, catalogue, dump_graders, parse_graders

__all__ = [
    "GRADERS",
    "Grade",
    "Grader",
    "catalogue",
    "dump_graders",
    "grade",
    "parse_graders",
]
