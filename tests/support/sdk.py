"""Differences between the SDK versions that the tests bridge."""

import importlib.metadata
import inspect

import pytest

VERSION = tuple(int(part) for part in importlib.metadata.version("tinker").split("."))


def resolved(client):
    """Newer SDKs return a future of the client where older ones return the client itself."""
    return client.result() if hasattr(client, "result") else client


def needs_argument(method, name):
    """Skips a test with SDKs whose `method` does not have the argument yet."""
    return pytest.mark.skipif(name not in inspect.signature(method).parameters,
                              reason=f"this SDK's {method.__name__} has no {name}")
