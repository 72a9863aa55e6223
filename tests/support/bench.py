"""What the benches share: children that answer commands, alternating rounds, ratios."""

import json
import statistics
import subprocess
import sys
import time


class Driver:
    """A child process that answers each line of JSON with one."""

    def __init__(self, *command):
        self.command = [str(word) for word in command]
        self.process = subprocess.Popen(self.command, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def run(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.command} ended: {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def alternate(rounds, *functions):
    """Lists of seconds of each function, run in turn `rounds` times after one turn to warm up.
    A function that gives a dict says its "seconds" there. What a turn took goes to stderr at once:
    some turns take minutes."""
    times = [[] for _ in functions]
    for turn in range(rounds + 1):
        for function, into in zip(functions, times):
            begin = time.perf_counter()
            result = function()
            into.append(result["seconds"] if isinstance(result, dict) else time.perf_counter() - begin)
        print(f"turn {turn}:", *(f"{into[-1]:.3f} s" for into in times), file=sys.stderr, flush=True)
    return [into[1:] for into in times]


def ratio(times, over):
    """How many times faster than `over`: the median over rounds."""
    return statistics.median(b / a for a, b in zip(times, over))
