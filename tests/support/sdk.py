"""Differences between the SDK versions that the tests bridge."""

import importlib.metadata

VERSION = tuple(int(part) for part in importlib.metadata.version("tinker").split("."))


def resolved(client):
    """Newer SDKs return a future of the client where older ones return the client itself."""
    return client.result() if hasattr(client, "result") else client
