"""Cases of scale_bench.py about what a call costs."""

import contextlib
import statistics
from concurrent.futures import ThreadPoolExecutor

import cases
from cpu_quota import CpuQuota, NoQuota
from machine import ms
from null_service import BIN, NullService, cpu_seconds
from result import Row

CPU_GOALS = {"sqlite": 0.22, "postgres": 0.32}  # ms of all processes a request
GATEWAY_CORES = 0.15
CLIENTS_OF_GATEWAY = 16


def measured_steps(service, load, clients, seconds):
    """A round, with the CPU of a request in ms and that of the engine alone."""
    engine = service.pids()["engine"]
    all_before, engine_before = service.cpu_seconds(), cpu_seconds(engine)
    run = load.run(op="steps", clients=clients, seconds=seconds)
    run["cpu_ms"] = 1e3 * (service.cpu_seconds() - all_before) / run["requests"]
    run["engine_cpu_ms"] = 1e3 * (cpu_seconds(engine) - engine_before) / run["requests"]
    return run


def noop(store, args):
    """Requests that compute nothing; with --base against another build, in turns."""
    size = args.size
    builds = {"now": BIN, **({"base": args.base} if args.base else {})}
    one, many = {name: [] for name in builds}, {name: [] for name in builds}
    with contextlib.ExitStack() as stack:
        services = {name: stack.enter_context(NullService(store, programs=folder))
                    for name, folder in builds.items()}
        loads = {name: service.load() for name, service in services.items()}
        for turn in range(size.rounds + 1):
            for name, service in services.items():
                alone = measured_steps(service, loads[name], 1, size.seconds)
                crowd = measured_steps(service, loads[name], size.clients, size.seconds)
                if turn > 0:  # the first one warms up
                    one[name].append(alone)
                    many[name].append(crowd)
        for load in loads.values():
            load.close()
    yield from noop_rows(store, size, one, many)


def noop_rows(store, size, one, many):
    def median(runs, key):
        return statistics.median(run[key] for run in runs)

    def ratio(runs, key):
        return statistics.median(now[key] / base[key]
                                 for now, base in zip(runs["now"], runs["base"]))

    cpu, goal = median(many["now"], "cpu_ms"), CPU_GOALS[store]
    what = f"{size.clients} clients: "
    yield Row(f"{what}CPU of all processes a request", f"{goal} ms", f"{cpu:.3f} ms", cpu <= goal)
    yield Row(f"{what}requests/s", "", f"{median(many['now'], 'per_second'):.0f}", None)
    yield Row("one client, p50", "", ms(median(one["now"], "p50_ms")), None)
    if "base" in one:
        rate, p50 = ratio(many, "per_second"), ratio(one, "p50_ms")
        yield Row(f"{what}requests/s over the base's", "1.4",
                  f"{rate:.2f} (base {median(many['base'], 'per_second'):.0f})", rate >= 1.4)
        yield Row("one client, p50 over the base's", "0.85",
                  f"{p50:.2f} (base {ms(median(one['base'], 'p50_ms'))})", p50 <= 0.85)
        yield Row(f"{what}CPU a request over the base's", "",
                  f"{ratio(many, 'cpu_ms'):.2f} (base {median(many['base'], 'cpu_ms'):.3f} ms)",
                  None)


def bodies(store, args):
    """As service_bench.py measures it."""
    args.store, args.rounds, args.seconds = store, args.size.rounds, args.size.seconds
    for what, measured, goal, holds in cases.large_bodies(args):
        yield Row(what, goal, measured, holds)


def run_together(service, loads, seconds):
    """Rate of all loads, and the engine's CPU of one request in ms."""
    engine = service.pids()["engine"]
    before = cpu_seconds(engine)
    with ThreadPoolExecutor(len(loads)) as pool:
        runs = list(pool.map(lambda load: load.run(op="steps", clients=CLIENTS_OF_GATEWAY,
                                                   seconds=seconds), loads))
    requests = sum(run["requests"] for run in runs)
    return (sum(run["per_second"] for run in runs),
            1e3 * (cpu_seconds(engine) - before) / max(requests, 1))


def gateways(store, args):
    """Two and four gateways, each as on a small machine of its own, in turns."""
    size = args.size
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(NullService(store))
        ports = [service.add_gateway(f"gateway{i}") for i in range(4)]
        try:
            quotas = [stack.enter_context(CpuQuota(service.pids()[f"gateway{i}"], GATEWAY_CORES))
                      for i in range(4)]
        except NoQuota as error:
            yield Row("two and four gateways", "1.8", f"not measured: {error}", None)
            return
        loads = [service.load(port=port) for port in ports]
        run_together(service, loads, size.seconds)  # warms up
        throttled = [quota.throttled_seconds() for quota in quotas]
        two, four = [], []
        for _ in range(size.rounds):
            two.append(run_together(service, loads[:2], size.seconds))
            four.append(run_together(service, loads, size.seconds))
        throttled = [quota.throttled_seconds() - before for quota, before in zip(quotas, throttled)]
        for load in loads:
            load.close()
    more = statistics.median(b[0] / a[0] for a, b in zip(two, four))
    growth = statistics.median(b[1] / a[1] for a, b in zip(two, four)) - 1
    rate_two, rate_four = (statistics.median(run[0] for run in runs) for runs in (two, four))
    cpu_two, cpu_four = (statistics.median(run[1] for run in runs) for runs in (two, four))
    yield Row(f"requests/s of four gateways of {GATEWAY_CORES} cores over that of two", "1.8",
              f"{more:.2f} ({rate_four:.0f} to {rate_two:.0f})", more >= 1.8)
    yield Row("growth of the engine's CPU a request", "5 %",
              f"{100 * growth:.1f} % ({cpu_four:.3f} to {cpu_two:.3f} ms)", growth <= 0.05)
    yield Row("time for which the quota held each gateway back", "",
              ", ".join(f"{seconds:.1f} s" for seconds in throttled), None)
