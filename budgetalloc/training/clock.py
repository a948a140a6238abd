"""A stopwatch of the trainer's own work."""

import time
from collections.abc import Callable


class Clock:
    """A stopwatch with laps, which can be stopped and restarted within a lap.

    >>> clock = Clock(iter([0.0, 7.0, 10.0, 14.0, 19.0]).__next__)
    >>> clock.go(); clock.stop(); clock.go(); clock.lap(); clock.stop(); clock.lap()
    11.0
    5.0
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._since: float | None = None  # None while it is stopped
        self._seconds = 0.0

    @property
    def running(self) -> bool:
        """Whether the clock runs."""
        return self._since is not None

    def go(self) -> None:
        """Starts the clock, unless it runs."""
        if self._since is None:
            self._since = self._now()

    def stop(self) -> None:
        """Stops the clock, if it runs."""
        if self._since is not None:
            self._seconds += self._now() - self._since
        self._since = None

    def lap(self) -> float:
        """The seconds that the clock ran since the last lap; it goes on running."""
        if self._since is not None:
            now = self._now()
            self._seconds, self._since = self._seconds + now - self._since, now
        seconds, self._seconds = self._seconds, 0.0
        return seconds
