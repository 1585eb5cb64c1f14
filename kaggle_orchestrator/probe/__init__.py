"""Measures a Kaggle: short CPU sessions of its own kernels find out what reports contradict each other on."""

from kaggle_orchestrator.probe.findings import Finding
from kaggle_orchestrator.probe.measure import SESSIONS, Probe, leftovers
from kaggle_orchestrator.probe.stage import Pace

__all__ = ["SESSIONS", "Finding", "Pace", "Probe", "leftovers"]
