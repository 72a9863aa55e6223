"""Cases of service_bench.py on a worker that computes nothing. Each gives rows (what, measured text,
goal text, whether it is met); None: it has no goal."""

import random
import statistics
import time

import ledger
from machine import ms, percent
from null_service import NullService

BATCH_TOKENS = 16384  # of the engine's defaults


def median_of(runs, name):
    return statistics.median(run[name] for run in runs)


def one_client(args):
    p50, p99 = {"sqlite": (1.5, 5), "postgres": (3, 10)}[args.store]
    with NullService(args.store) as service:
        load = service.load()
        load.run(op="steps", clients=1, seconds=args.seconds / 4)
        runs = [load.run(op="steps", clients=1, seconds=args.seconds) for _ in range(args.rounds)]
        load.close()
    yield ("no-op request, one client, p50", ms(median_of(runs, "p50_ms")), f"{p50} ms",
           median_of(runs, "p50_ms") <= p50)
    yield ("no-op request, one client, p99", ms(median_of(runs, "p99_ms")), f"{p99} ms",
           median_of(runs, "p99_ms") <= p99)
    yield ("of it until the submission is answered, p50", ms(median_of(runs, "submit_p50_ms")), "",
           None)


def many_clients(args):
    goal = {"sqlite": 3000, "postgres": 2000}[args.store]
    with NullService(args.store) as service:
        load = service.load()
        load.run(op="steps", clients=64, seconds=args.seconds / 4)
        before = service.cpu_seconds()
        runs = [load.run(op="steps", clients=64, seconds=args.seconds) for _ in range(args.rounds)]
        cpu = service.cpu_seconds() - before
        load.close()
    rate = median_of(runs, "per_second")
    yield "64 clients, requests/s", f"{rate:.0f}", str(goal), rate >= goal
    yield "64 clients, p50 and p99", f"{ms(median_of(runs, 'p50_ms'))}, {ms(median_of(runs, 'p99_ms'))}", "", None
    count = sum(run["requests"] for run in runs)
    yield "64 clients, CPU of all processes a request", f"{1e3 * cpu / count:.2f} ms", "", None


def waiting_polls(args):
    count, hold = args.polls, args.hold
    # Nothing may end the wait but the case itself.
    with NullService(args.store, engine=("--gap-timeout", "3600s"),
                     gateway=("--poll-hold-seconds", str(hold))) as service:
        load = service.load()
        load.run(op="steps", clients=1, seconds=1)
        load.run(op="open_idle_polls", count=count)
        time.sleep(2)
        memory = service.engine_memory()
        load.run(op="poll")
        time.sleep(1 + hold / 2)  # all are there
        begin, cpu = time.monotonic(), service.cpu_seconds()
        time.sleep(hold)
        share = (service.cpu_seconds() - cpu) / (time.monotonic() - begin)
        per_poll = (service.engine_memory() - memory) / count
        runs = [load.run(op="steps", clients=1, seconds=args.seconds, pause_ms=5)
                for _ in range(args.rounds)]
        answers = load.run(op="close_idle_polls")["answers"]
        load.close()
    assert answers > 0, "no poll was answered"
    submit = median_of(runs, "submit_p99_ms")
    yield f"{count} polls of {hold} s: submit, p99", ms(submit), "20 ms", submit <= 20
    yield f"{count} polls: CPU of all processes", f"{percent(share)} of a core", "4 %", share <= 0.04
    yield (f"{count} polls: engine's memory a poll", f"{per_poll / 1024:.1f} KiB", "8 KiB",
           per_poll <= 8192)


def large_bodies(args):
    with NullService(args.store) as service:
        load = service.load()
        load.run(op="steps", clients=1, seconds=1)
        runs = [load.run(op="bodies", megabytes=5, per_second=20, seconds=args.seconds)
                for _ in range(args.rounds)]
        load.close()
    small = statistics.median(run["small"]["p99_ms"] for run in runs)
    rate = statistics.median(run["bodies"]["per_second"] for run in runs)
    total = statistics.median(run["bodies"]["p50_ms"] for run in runs)
    yield "5 MB bodies beside small requests: these, p99", ms(small), "25 ms", small <= 25
    yield "5 MB bodies a second, and their p50", f"{rate:.1f}, {ms(total)}", "20", rate >= 19


def flood(args):
    batch_seconds, tokens = 0.2, 512
    speed = int(BATCH_TOKENS / batch_seconds)
    with NullService(args.store, worker=("--tokens-per-second", str(speed))) as service:
        load = service.load()
        flooder, other = service.key("flooder"), service.key("other")
        load.run(op="flood", name="a", api_key=flooder, models=16, requests=args.flood, tokens=tokens)
        rng = random.Random(1)
        # It comes at any time of a pass.
        runs = [load.run(op="single", api_key=other, tokens=tokens,
                         pause_ms=1e3 * batch_seconds * rng.uniform(1, 3))
                for _ in range(4 * args.rounds + 1)]
        # Until its own pass, which is full, begins.
        waits = sorted(run["gradient_ms"] / 1e3 / batch_seconds - 1 for run in runs)
        wait = waits[len(waits) // 2]
        step = median_of(runs, "step_ms") / 1e3 / batch_seconds
        # As many tokens in smaller requests.
        load.run(op="flood", name="b", api_key=other, models=16, requests=args.flood, tokens=tokens // 4)
        load.run(op="drain", names=["a", "b"], seconds=2)  # what has ended before
        done = load.run(op="drain", names=["a", "b"], seconds=2 * args.seconds)
        load.close()
    shares = [done["a"] * tokens, done["b"] * tokens // 4]
    apart = abs(shares[0] - shares[1]) / max(statistics.mean(shares), 1)
    yield (f"one tenant has {args.flood} steps waiting: another's step, in batch times",
           f"{wait:.2f} (worst of {len(waits)}: {waits[-1]:.2f})", "2", wait <= 2)
    yield "until that step is done, in batch times", f"{step:.2f}", "", None
    yield "tokens of two equal tenants, apart", percent(apart), "10 %", apart <= 0.1


def large_ledger(args):
    service = NullService(args.store, engine=("--snapshot-interval", "1s", "--snapshot-share", "1"))
    with service:
        counts = ledger.fill(service, args.finished, args.waiting)
        service.start()
        ready = service.start_seconds
        memory = service.engine_memory()
        load = service.load("another")
        first = load.run(op="steps", clients=1, seconds=0.1)
        steps = load.run(op="steps", clients=1, seconds=args.seconds)
        claim = histogram_quantile(service.metrics(), "lathe_engine_core_step_seconds", 0.99)
        load.close()
    what = f"{counts[0]:,} finished and {counts[1]:,} waiting requests"
    yield f"{what}: start", f"{ready:.1f} s", "5 s", ready <= 5
    yield f"{what}: a decision of the core, p99", f"at most {ms(1e3 * claim)}", "5 ms", claim <= 5e-3
    yield f"{what}: another tenant's step, first and p99", f"{ms(first['p50_ms'])}, {ms(steps['p99_ms'])}", "", None
    yield f"{what}: engine's memory", f"{memory / 2**20:.0f} MiB", "", None


def histogram_quantile(page, name, share):
    """The upper bound of the bucket that holds it."""
    buckets = []
    for line in page.splitlines():
        if line.startswith(f"{name}_bucket"):
            bound = line.split('le="', 1)[1].split('"', 1)[0]
            buckets.append((float(bound.replace("+Inf", "inf")), float(line.rsplit(" ", 1)[1])))
    return next(bound for bound, count in buckets if count >= share * buckets[-1][1])
