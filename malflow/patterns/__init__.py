"""Patterns of a key's events: steps in sequence, absences, and limits of time.

>>> failed = step("failed", lambda login: not login["ok"])
>>> login = step("login", lambda login: login["ok"])
>>> brute_force = failed.times(3, without=login).then(login).within(300)
>>> print(brute_force)
failed{3}[!login] -> login within 300
"""

from malflow.patterns.explaining import Found
from malflow.patterns.match import Event, Match, SoFar
from malflow.patterns.pattern import Absent, Pattern, absent
from malflow.patterns.steps import step

__all__ = ["Absent", "Event", "Found", "Match", "Pattern", "SoFar", "absent", "step"]
