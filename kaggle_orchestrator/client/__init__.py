"""Talking to Kaggle: the only package that imports the official SDK.

The SDK supplies the routes, the requests' fields and their serialisation; answers are decoded here from the raw JSON,
and every failure leaves as one of :mod:`kaggle_orchestrator.errors`.
"""

from kaggle_orchestrator.client.connection import connect
from kaggle_orchestrator.client.kaggle import Kaggle
from kaggle_orchestrator.client.policy import Policy
from kaggle_orchestrator.client.signed import Resign

__all__ = ["Kaggle", "Policy", "Resign", "connect"]
