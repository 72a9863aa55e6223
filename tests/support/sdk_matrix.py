"""Records which public methods of the SDK answered what they should: the compatibility table's cells.

A test of a method is marked `@sdk_method("TrainingClient.save_state")`, asks for the fixture `answer`
and checks the value inside a block:

    with answer(client, "name") as saved:
        assert saved.path == ...

A command of `tinker` is a method of "tinker", `@sdk_method("tinker.run list")`, with the fixture `cli`
as client. A test runs once for the method and once for its `_async` twin, where this SDK has them. A cell counts when
the block has ended without an exception; that it asserts something of the value is checked when the
tests are collected. The docstring of a test is the table's note on its method.
"""

import ast
import asyncio
import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import click
import pytest

CLIENTS = {"ServiceClient": "service_client", "TrainingClient": "training_client",
           "SamplingClient": "sampling_client", "RestClient": "rest_client",
           "AdminClient": "admin_client"}
SDK_VERSION = importlib.metadata.version("tinker")

sdk_method = pytest.mark.sdk_method


@functools.cache
def client_class(name):
    """None where this SDK has no such client."""
    try:
        module = importlib.import_module(f"tinker.lib.public_interfaces.{CLIENTS[name]}")
    except ImportError:
        return None
    return getattr(module, name)


@functools.cache
def cli_commands():
    """Every command of the SDK's program, as "group command"."""
    from tinker.cli.__main__ import main_cli

    def walk(command, path):
        names = command.list_commands(click.Context(command)) if hasattr(
            command, "list_commands") else []
        for name in names:
            yield from walk(command.get_command(click.Context(command), name), [*path, name])
        if not names:
            yield " ".join(path)

    return list(walk(main_cli, []))


class Cli:
    """The SDK's program: `getattr(cli, "run list")(...)` runs it in this process. Without a key it
    has what `auth login` left in `home`, and `stdin` to read. `own_process`: it sees nothing of
    what the SDK remembers in this one (a server's settings)."""

    def __init__(self, url, api_key=None, home=None, stdin=None, own_process=False):
        self._stdin = stdin
        self._own_process = own_process
        self._environment = {"TINKER_BASE_URL": url, "TINKER_API_KEY": api_key,
                             "TINKER_TELEMETRY": "0"}
        if home is not None:
            self._environment["HOME"] = str(home)

    def __getattr__(self, command):
        from click.testing import CliRunner
        from tinker.cli.__main__ import main_cli

        def parsed(text):
            try:
                return json.loads(text)
            except ValueError:
                return text

        def run(*arguments):
            if self._own_process:
                done = subprocess.run(
                    [sys.executable, "-m", "tinker.cli", "--format", "json", *command.split(),
                     *arguments], env={**os.environ, **self._environment}, input=self._stdin,
                    capture_output=True, text=True)
                assert done.returncode == 0, done.stdout + done.stderr
                return parsed(done.stdout)
            result = CliRunner().invoke(main_cli, ["--format", "json", *command.split(), *arguments],
                                        env=self._environment, input=self._stdin)
            if result.exception is not None:
                raise result.exception
            return parsed(result.stdout)
        return run


def public_methods():
    """Every public method of the clients of this SDK, as "Client.method", and its commands."""
    return [f"{client}.{name}" for client in CLIENTS if client_class(client)
            for name, member in inspect.getmembers(client_class(client))
            if callable(member) and not name.startswith("_")] \
        + [f"tinker.{command}" for command in cli_commands()]


def existing_forms(method):
    """The method and its asynchronous twin, as far as this SDK has them."""
    client, _, name = method.partition(".")
    if client == "tinker":
        return [name] if name in cli_commands() else []
    return [form for form in (name, name + "_async") if hasattr(client_class(client), form)]


def _asserts_the_value(function):
    """Whether every `with answer(...) as value` block has an assert that names the value."""
    def names(node):
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}

    blocks = [(node, item.optional_vars)
              for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
              if isinstance(node, ast.With) for item in node.items
              if "answer" in names(item.context_expr)]
    return bool(blocks) and all(
        value is not None and any(isinstance(statement, ast.Assert)
                                  and names(value) & names(statement)
                                  for statement in ast.walk(block))
        for block, value in blocks)


def _settle(value):
    """What a user has in the end: futures waited for, coroutines run."""
    async def awaited():
        settled = value
        while inspect.isawaitable(settled):
            settled = await settled
        return settled

    if inspect.iscoroutine(value):
        return asyncio.run(awaited())
    return value.result() if hasattr(value, "result") else value


class Answer:
    """Calls the method under test, in one of its forms."""

    def __init__(self, method, form, cells):
        self.is_async = form.endswith("_async")
        self._form = form
        self._cell = f"{method.partition('.')[0]}.{form}"
        self._cells = cells

    @contextlib.contextmanager
    def __call__(self, client, *args, **kwargs):
        yield _settle(getattr(client, self._form)(*args, **kwargs))
        self._cells[self._cell] = "yes"

    @contextlib.contextmanager
    def refused(self, error, client, *args, **kwargs):
        """For what Lathe or the SDK refuses; the value is the exception."""
        with pytest.raises(error) as caught:
            _settle(getattr(client, self._form)(*args, **kwargs))
        yield caught.value
        self._cells[self._cell] = "refused"


class MatrixPlugin:
    def __init__(self):
        self.cells = {}
        self.notes = {}

    def pytest_generate_tests(self, metafunc):
        marker = metafunc.definition.get_closest_marker("sdk_method")
        if marker is None:
            return
        method = marker.args[0]
        if not _asserts_the_value(metafunc.function):
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: no assert names the answer")
        self.notes[method] = " ".join(inspect.getdoc(metafunc.function).split())
        forms = existing_forms(method)
        metafunc.parametrize("answer", [Answer(method, form, self.cells) for form in forms],
                             ids=forms)

    def pytest_sessionfinish(self):
        path = os.environ.get("LATHE_SDK_MATRIX")
        if path:
            pathlib.Path(path).write_text(json.dumps(
                {"sdk": SDK_VERSION, "methods": public_methods(), "cells": self.cells,
                 "notes": self.notes}, indent=1, sort_keys=True))
