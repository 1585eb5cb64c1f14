"""A rule: a small function with an id and a severity, whose only input is the subject."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kaggle_orchestrator.check.finding import Finding, Severity
from kaggle_orchestrator.check.subject import Subject


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule's function yields; the rule adds its id and severity."""

    message: str
    fix: str
    where: str = ""


Find = Callable[[Subject], Iterator[Hit]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule under its id, by which it can be switched off."""

    id: str
    severity: Severity
    find: Find

    def run(self, subject: Subject) -> Iterator[Finding]:
        """All that the rule finds."""
        for hit in self.find(subject):
            yield Finding(self.id, self.severity, hit.message, hit.fix, hit.where)


def register_in(rules: list[Rule]) -> Callable[[str, Severity], Callable[[Find], Rule]]:
    """A decorator that makes a function a rule and appends it to ``rules``; they report in that order."""

    def rule(identifier: str, severity: Severity) -> Callable[[Find], Rule]:
        def register(find: Find) -> Rule:
            rules.append(Rule(identifier, severity, find))
            return rules[-1]

        return register

    return rule
