"""How much of an engine's work each sequence was, while it works on many at once. No torch.

Every moment in which the engine computes is shared alike by the sequences that are then at work,
so what all of them are charged is what the engine computed. It follows that a sequence that is
alone at the end of a batch is charged more for its last tokens: they did cost more.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

MAX_POINTS = 400_000  # then the older half is forgotten; at ten steps a second, half of six hours


class DeviceShare:
    """Device-seconds of one sequence that is always at work, as a function of time.

    Linear between points: it grows while the engine computes, by 1 / sequences at work a second.
    """

    def __init__(self) -> None:
        self._times = array("d", [0.0])  # epoch s
        self._shares = array("d", [0.0])  # device-seconds

    def worked(self, ended_at: float, took_s: float, num_running: int) -> None:
        """The engine has computed for `took_s` up to `ended_at` (epoch s)."""
        began_at = max(self._times[-1], ended_at - took_s)  # a clock that is set back stands still
        self._times.extend((began_at, max(began_at, ended_at)))
        share = self._shares[-1]
        self._shares.extend((share, share + took_s / max(1, num_running)))
        if len(self._times) > MAX_POINTS:
            del self._times[: MAX_POINTS // 2], self._shares[: MAX_POINTS // 2]

    def between(self, started_at: float, finished_at: float) -> float:
        """Device-seconds of a sequence that was at work from then until then (epoch s)."""
        return max(0.0, self._at(finished_at) - self._at(started_at))

    def _at(self, moment: float) -> float:
        place = bisect_right(self._times, moment)
        if place == 0:
            return self._shares[0]
        if place == len(self._times):
            return self._shares[-1]
        before, after = self._times[place - 1], self._times[place]
        part = (moment - before) / (after - before)
        return self._shares[place - 1] + part * (self._shares[place] - self._shares[place - 1])
