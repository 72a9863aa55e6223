"""What a Lathe costs while nobody asks it for anything: CPU and wake-ups of every process and thread.

    .venv/bin/python tests/bench/service/idle_cpu.py
    .venv/bin/python tests/bench/service/idle_cpu.py --programs before=/tmp/old/bin \\
        --programs after=build/release/bin

Serves a random model in each case: `idle`, nothing happened since the start; `trained`, a model was
made and trained, and its client went without a word; `session`, a client of the SDK has trained and
sampled, and stays; `tp2`, two ranks. Start-up is not measured. With several builds all run at once
and are read in the same windows, so that what else the machine does meets them alike. Figures are
medians of the windows: CPU in percent of one core, wake-ups (voluntary context switches) per second.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
from machine import machine_line  # noqa: E402
from support.lathe_server import BIN, LatheServer, tiny_model  # noqa: E402
from support.raw_api import RawApi, RawModel  # noqa: E402
from support.sdk import resolved  # noqa: E402

# Longer than until the first snapshot and the executor's pause.
SETTLE_SECONDS = 20
# Threads with less of both are not listed.
LEAST_PERCENT, LEAST_WAKE_UPS = 0.005, 0.1


class Usage(collections.namedtuple("Usage", "cpu_seconds wake_ups")):
    """Since a thread's start, or of a window."""

    def __add__(self, other):
        return Usage(*(a + b for a, b in zip(self, other)))

    def __sub__(self, other):
        return Usage(*(a - b for a, b in zip(self, other)))


def thread_usage(task):
    """(name, Usage) of a folder of /proc/PID/task."""
    name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
    fields = fields.split()
    ticks = int(fields[11]) + int(fields[12])
    wake_ups = next(int(line.split()[1]) for line in (task / "status").read_text().splitlines()
                    if line.startswith("voluntary_ctxt_switches"))
    return name, Usage(ticks / os.sysconf("SC_CLK_TCK"), wake_ups)


def read_threads(pid):
    """{(thread id, name): Usage}."""
    threads = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has ended
            name, usage = thread_usage(task)
            threads[(task.name, name)] = usage
    return threads


def process_cpu_seconds(pid):
    """As the kernel counts it in nanoseconds; per thread /proc gives hundredths of a second."""
    return time.clock_gettime((~pid << 3) | 2)


class Window:
    """Usage of one server's processes between two reads."""

    def __init__(self, server):
        self.pids = server.pids()
        self.begin, self.cpu, self.threads = time.monotonic(), *self._read()

    def _read(self):
        return ({name: process_cpu_seconds(pid) for name, pid in self.pids.items()},
                {name: read_threads(pid) for name, pid in self.pids.items()})

    def end(self):
        """({process: Rates}, {(process, thread): Rates}); threads of one name are added up."""
        seconds, (cpu, threads) = time.monotonic() - self.begin, self._read()
        processes, by_name = {}, collections.defaultdict(lambda: Usage(0, 0))
        for process, now in threads.items():
            before = self.threads[process]
            for key, usage in now.items():
                by_name[process, key[1]] += usage - before.get(key, Usage(0, 0))
            wake_ups = sum(usage.wake_ups for (owner, _), usage in by_name.items()
                           if owner == process)
            processes[process] = Usage(cpu[process] - self.cpu[process], wake_ups)
        return ({name: rates(usage, seconds) for name, usage in processes.items()},
                {name: rates(usage, seconds) for name, usage in by_name.items()})


Rates = collections.namedtuple("Rates", "percent wake_ups")


def rates(usage, seconds):
    return Rates(100 * usage.cpu_seconds / seconds, usage.wake_ups / seconds)


def medians(windows):
    """Of {name: Rates} of several windows."""
    names = dict.fromkeys(name for window in windows for name in window)
    return {name: Rates(*(statistics.median(window.get(name, Rates(0, 0))[i] for window in windows)
                          for i in range(2))) for name in names}


def use_raw(server, stack):
    """A client that trains and goes without a word."""
    with contextlib.closing(RawApi(server)) as api:
        model = RawModel(api)
        for _ in range(3):
            model.accumulate()
            model.step()


def use_sdk(server, stack):
    """A client of the stock SDK that trains and samples, and then stays."""
    import tinker
    from tinker import types
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    training = resolved(service.create_lora_training_client(base_model=server.model_name, rank=4))
    tokens = [30, 31, 32, 33]
    datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * 3})
    for _ in range(3):
        training.forward_backward([datum], "cross_entropy").result()
        training.optim_step(types.AdamParams(learning_rate=1e-4)).result()
    sampler = resolved(training.save_weights_and_get_sampling_client())
    sampler.sample(types.ModelInput.from_ints(tokens), num_samples=1,
                   sampling_params=types.SamplingParams(max_tokens=8)).result()
    stack.callback(lambda: service.close("success").result())


def nothing(server, stack):
    pass


CASES = {"idle": ((), nothing), "trained": ((), use_raw), "session": ((), use_sdk),
         "tp2": (("--tp", "2"), nothing)}


def measure(case, model, builds, rounds, seconds):
    """{build: (processes, threads)} of medians."""
    arguments, use = CASES[case]
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(
            LatheServer(model, args=arguments, programs=folder))
            for name, folder in builds.items()}
        for server in servers.values():
            use(server, stack)
        time.sleep(SETTLE_SECONDS)
        windows = {name: [] for name in builds}
        for _ in range(rounds):
            open_windows = {name: Window(server) for name, server in servers.items()}
            time.sleep(seconds)
            for name, window in open_windows.items():
                windows[name].append(window.end())
        return {name: tuple(medians([window[i] for window in of_build]) for i in range(2))
                for name, of_build in windows.items()}


def row(name, figures):
    """`figures`: a Rates of each build, or None."""
    cells = "".join(" | " if one is None else f" {one.percent:.2f} | {one.wake_ups:.1f} |"
                    for one in figures)
    print(f"| {name} |{cells}", flush=True)


def print_case(case, measured):
    builds = list(measured)
    print(f"\n{case}: CPU % of one core and wake-ups/s\n")
    print("| |" + "".join(f" {name}: CPU % | wake-ups/s |" for name in builds))
    print("|---|" + "---:|" * (2 * len(builds)))
    processes = dict.fromkeys(name for of_build in measured.values() for name in of_build[0])
    row("**all**", [Rates(*(sum(figure[i] for figure in measured[name][0].values())
                            for i in range(2))) for name in builds])
    for process in processes:
        row(f"**{process}**", [measured[name][0].get(process, Rates(0, 0)) for name in builds])
        threads = dict.fromkeys(thread for of_build in measured.values()
                                for owner, thread in of_build[1] if owner == process)
        for thread in threads:
            figures = [measured[name][1].get((process, thread), Rates(0, 0)) for name in builds]
            if any(one.percent >= LEAST_PERCENT or one.wake_ups >= LEAST_WAKE_UPS
                   for one in figures):
                row(f"{process}: `{thread}`", figures)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", action="append", metavar="NAME=FOLDER",
                        help="a build to measure, several times for several (default: LATHE_BIN)")
    parser.add_argument("--cases", default=",".join(CASES), help="some of %(default)s")
    parser.add_argument("--size", choices=("tiny", "0.6b"), default="tiny", help="of the model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30, help="of a round")
    args = parser.parse_args()
    args.cases = args.cases.split(",")
    unknown = set(args.cases) - set(CASES)
    if unknown:
        parser.error(f"cases are {', '.join(CASES)}, not {', '.join(sorted(unknown))}")
    args.programs = dict(entry.split("=", 1) for entry in args.programs or [f"now={BIN}"])
    return args


def main():
    args = parse()
    print(f"Machine: {machine_line()}", flush=True)
    model = tiny_model("--size", args.size) if args.size != "tiny" else tiny_model()
    for case in args.cases:
        print_case(case, measure(case, model, args.programs, args.rounds, args.seconds))
    print(f"\nLoad at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
