"""What a tenant's code may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of time, memory and text. Seconds are wall time: on a busy machine they buy less."""

    load_s: float = 1.0  # running a source's top level
    row_s: float = 1.0  # one completion alone
    batch_row_s: float = 0.2  # what each completion adds to the limit of a batch
    batch_s: float = 30.0  # a batch, whatever its size
    one_by_one_s: float = 60.0  # all rows of a batch that failed, each alone
    turn_s: float = 5.0  # one turn of the python tool
    grace_s: float = 5.0  # after a limit the child is killed if it has not said so itself
    start_s: float = 60.0  # starting a child on a busy machine
    memory_mib: int = 128  # of an instance; the interpreter itself takes some 40
    data_mib: int = 768  # of a child: all instances of a tenant together
    source_bytes: int = 65_536
    payload_bytes: int = 8 << 20  # all rows of one call
    answer_bytes: int = 4 << 20
    scores_bytes: int = 512 << 10  # an answer that is scores: what was printed, and
    score_bytes: int = 8 << 10  # for each row its number or error
    output_characters: int = 65_536
    error_characters: int = 1_000

    def answer_bytes_of(self, num_scores: int | None = None) -> int:
        """Of so many scores, or of other values."""
        if num_scores is None:
            return self.answer_bytes
        return min(self.answer_bytes, self.scores_bytes + num_scores * self.score_bytes)

    def batch_limit_s(self, num_rows: int) -> float:
        """For so many rows in one go."""
        return min(self.batch_s, self.row_s + self.batch_row_s * (num_rows - 1))
