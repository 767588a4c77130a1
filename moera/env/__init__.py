"""The SDK for environments: subclass `Environment`, serve it, call it. No torch here."""

from moera.env.environment import Environment, StepResult

__all__ = ["Environment", "StepResult"]
