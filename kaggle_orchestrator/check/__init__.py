"""Static checks of an experiment: they read, render and report; they run nothing and ask no network."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kaggle_orchestrator.check import code_rules, kernel_rules
from kaggle_orchestrator.check.finding import Finding, Severity
from kaggle_orchestrator.check.subject import Subject
from kaggle_orchestrator.errors import RenderError, UsageError
from kaggle_orchestrator.experiment import Experiment, select
from kaggle_orchestrator.models import PushRequest
from kaggle_orchestrator.render import first_attempt, render

__all__ = ["RULES", "Finding", "Report", "Severity", "check"]

RULES = {rule.id: rule for rule in (*kernel_rules.RULES, *code_rules.RULES)}
"""Every rule by its id, in the order in which they report."""
_ORDER = list(Severity)


@dataclass(frozen=True, slots=True)
class Report:
    """What the checks found, the worst first.

    Attributes:
        files: How many files travel.
        request: The rendered kernel, or None if it can't be rendered.
    """

    findings: tuple[Finding, ...]
    files: int
    request: PushRequest | None

    @property
    def failed(self) -> bool:
        """Whether something will certainly fail."""
        return any(f.severity is Severity.ERROR for f in self.findings)


def check(experiment: Experiment, owner: str, *, environ: Mapping[str, str], ignore: Collection[str] = ()) -> Report:
    """Run every rule but those in ``ignore`` on an experiment, rendered as its first attempt.

    Raises:
        UsageError: ``ignore`` names a rule that doesn't exist.
        ConfigError: The files can't be collected.
    """
    if unknown := sorted({*ignore} - {*RULES}):
        raise UsageError(f"There is no check {unknown[0]!r}.", hint=f"Known: {', '.join(RULES)}.")
    request, failure = None, None
    try:
        request = render(experiment, first_attempt(experiment, owner))
    except RenderError as error:
        failure = error
    selection = select(experiment)
    subject = Subject(experiment, selection.files, tuple(selection.held_back), request, failure, environ)
    findings = [f for rule in RULES.values() if rule.id not in ignore for f in rule.run(subject)]
    findings.sort(key=lambda f: _ORDER.index(f.severity))
    return Report(tuple(findings), len(selection.files), request)
