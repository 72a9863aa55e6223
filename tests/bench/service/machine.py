"""What the figures of a run depend on."""

import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time

from support.lathe_server import BIN


def machine_line():
    cpu = next((line.split(":", 1)[1].strip()
                for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores "
            f"({cpu}), {memory:.0f} GiB, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")


def fsync_ms(count=300):
    """(p50, p99) of writing 4 KiB over what is there and fdatasync, as a database does to its log,
    where the benches keep their data."""
    times = []
    with tempfile.NamedTemporaryFile() as file:
        os.write(file.fileno(), bytes(4096 * count))
        os.fsync(file.fileno())
        for i in range(count):
            begin = time.perf_counter()
            os.pwrite(file.fileno(), os.urandom(4096), 4096 * i)
            os.fdatasync(file.fileno())
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times), sorted(times)[int(0.99 * count)]


def grpc_echo(calls=3000):
    with tempfile.TemporaryDirectory() as folder:
        answer = subprocess.run([str(BIN / "lathe_grpc_echo"), f"{folder}/echo.sock", str(calls)],
                                check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)


def ms(value):
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms"


def percent(share):
    return f"{100 * share:.1f} %"
