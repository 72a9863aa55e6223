"""Row B8 of the fault table: the wall clock jumps an hour, for one process at a time (libfaketime)."""

import glob
import os
import pathlib
import shutil
import stat
import time

import pytest
from support import lathe_server
from support.lathe_server import BIN, LatheServer, tiny_model
from support.stubborn_api import Program, StubbornApi

LIBRARIES = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")


@pytest.fixture
def jumping(tmp_path, monkeypatch, request):
    """(server, set): a Lathe one process of which sees the time that `set` shifts."""
    assert LIBRARIES, "libfaketime is missing; tools/setup installs it"
    name = request.param
    shift = tmp_path / "shift"
    shift.write_text("+0\n")
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy2(BIN / "lathe", folder / "lathe")
    for program in ("lathe-engine", "lathe-worker", "lathe-gateway"):
        script = folder / program
        if program != f"lathe-{name}":
            script.symlink_to(BIN / program)
            continue
        script.write_text(
            f"#!/bin/sh\nexport LD_PRELOAD={LIBRARIES[0]} FAKETIME_TIMESTAMP_FILE={shift} "
            f"FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1\n"
            f'exec {BIN / program} "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(lathe_server, "BIN", folder)

    def set_shift(text):
        fresh = pathlib.Path(f"{shift}.new")
        fresh.write_text(text + "\n")
        os.replace(fresh, shift)

    with LatheServer(tiny_model(), env={"LATHE_WORKER__NUMERICS": "exact"}) as server:
        yield server, set_shift


@pytest.mark.parametrize("jumping", ["engine", "gateway"], indirect=True)
def test_b8_a_clock_that_jumps_an_hour_expires_nothing(jumping):
    server, set_shift = jumping
    api = StubbornApi(server)
    program = Program(api)
    program.step()
    pids = server.pids()
    done = program.forward_backward((33, 34, 35))
    first = api.result(done)
    for shift in ("+3600", "-3600", "+0"):
        set_shift(shift)
        # Ticks, heartbeats and looks of whoever ends what is old, and no sign of life of the client.
        time.sleep(3)
        assert "error" not in api.result(program.forward_backward((33, 34, 35)))
        assert api.result(done) == first
        assert api.post("session_heartbeat",
                        {"session_id": program.model.session_id}).status_code == 200
    program.step()
    assert server.pids() == pids
