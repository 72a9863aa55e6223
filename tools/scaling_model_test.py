"""The model of many GPUs: its parts by hand, and the pages that print it."""

import dataclasses
import pathlib
import re

import pass_plan
import pytest
import scaling_model as model
from pass_plan import Lora, Pass
from support import rank_traffic as formula

ROOT = pathlib.Path(__file__).resolve().parents[1]
ARGS = model.parse([])
MACHINE = model.machine_of(ARGS)


def work(tokens=4096, chunks=16, checkpointed=0):
    """One pass."""
    return model.Work((Pass(tokens, chunks, checkpointed),), 2048)


def parts(name, shape="8B", step=work(), machine=MACHINE, **change):
    return model.training(machine, model.SHAPES[shape], model.axes(name), step,
                          model.Change(**change))[0]


def planned(name, shape="8B", tokens=131072, *options):
    """A step in the passes that a worker plans."""
    args = model.parse(list(options))
    machine = model.machine_of(args)
    step = model.work_of(args, machine, model.SHAPES[shape], model.axes(name), tokens)
    return step, parts(name, shape, step, machine)


def exposed(*case):
    """In whole percent."""
    return f"{100 * model.share_exposed(planned(*case)[1]):.0f}"


def table_rows(text):
    return [line for line in text.splitlines() if re.match(r"\| (model|8B|32B) \|", line)]


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_pages_have_what_the_tool_prints_and_no_other_rows(capsys):
    model.main([])
    printed = table_rows(capsys.readouterr().out)
    assert len(printed) > 60
    assert table_rows(page("measurements/cost_model.md")) == printed
    rows = table_rows(page("scaling.md"))
    assert len(rows) > 10
    assert [row for row in rows if row not in printed] == []


def test_the_prediction_of_what_was_measured_is_on_the_page(capsys):
    """docs/measurements/ranks.md: 5.77 MB a step with dp 2, two groups reach 1.85 x."""
    shape = formula.Shape(8, 1024, 2048, 1024, 3072, 151936)
    moved = formula.optim_step(shape, 8, {"dp": 2}, unembed=False)[formula.DATA]["data gradients"]
    assert f"{moved.bytes / 1e6:.2f} MB" == "5.77 MB"
    model.main(["--measured"])
    dp, tp = re.findall(r"^[dt]p 2: ([\d.]+) x one rank", capsys.readouterr().out, re.M)
    text = " ".join(page("measurements/cost_model.md").split())
    assert f"It then predicts {dp} x for dp 2 and {tp} x for tp 2." in text
    assert (f"Times 1.85 / 2, the predictions are {float(dp) * 1.85 / 2:.2f} and {float(tp) * 1.85 / 2:.2f}. "
            "Measured were 1.81 and 1.78.") in text
    measured = page("measurements/ranks.md")
    assert all(f"| 332.8 tokens/s | {row}" in measured for row in ("600.8, **1.81 x**", "593.6, **1.78 x**"))


def repeated(name, tokens):
    """Percent of a step that is exposed, of 8B in passes of that size."""
    step = model.Work((Pass(tokens, 1),) * 16, 2048)
    return f"{100 * model.share_exposed(parts(name, step=step)):.0f}"


def test_the_prose_has_the_figures_of_the_model():
    shape, nvlink = model.SHAPES["8B"], model.link_of(MACHINE, 8, 1)
    of_token = formula.total({"tp": formula.forward_backward(shape, 1, {"tp": 8})["tp"]}).bytes
    compute = model.Compute(MACHINE, shape, model.axes("tp 8"), 1, 2048).all
    kept = [pass_plan.PassMemory(model.SHAPES[name], model.axes("dp 8"), 0) for name in ("8B", "32B")]
    slow = ("--nic", "12.5", "--nic-us", "60")
    dp = [planned("dp 64", "8B", 131072, *more)[1] for more in ((), slow)]
    dp_ms = [f"{1e3 * one['dp']:.0f} ms" for one in dp]
    dp_share = [f"{100 * one['dp'] / sum(one.values()):.0f} %" for one in dp]
    speed = {case: 100 - int(exposed(*case[::-1])) for case in
             (("8B", "tp 8"), ("8B", "dp 4 x tp 2"), ("32B", "tp 8"), ("32B", "dp 4 x tp 2"))}

    def sum_over(tp, rows):
        return model.link_of(MACHINE, tp, 1).time(formula.all_reduce(tp, 4 * rows * shape.hidden))

    def decoded(tp):
        return sum(model.decode(MACHINE, shape, tp, 64).values())

    both = [planned("dp 4 x fsdp 2", "32B", 131072, "--role", role) for role in ("train", "both")]
    twice = both[1][0].passes[0]
    assert twice.idle == 4
    text = " ".join(page("scaling.md").split())
    sentences = (
        f"twice the {4 * shape.lora(*Lora()) / 1e6:.0f} MB of the gradients",
        f"the sum takes {dp_ms[0]} over InfiniBand and {dp_ms[1]} over 100 Gb/s Ethernet",
        f"that is {dp_share[0]} and {dp_share[1].replace(' %', ' % of the step')}",
        f"share these tokens {exposed('dp 64', '8B', 131072, '--adapters', '8')} % of the step are exposed",
        f"a rank receives {of_token / 1e6:.1f} MB per token. The transfer takes "
        f"{1e6 * of_token / nvlink.bytes_per_second:.0f} us over NVLink, beside {1e6 * compute:.0f} us of",
        f"tp 8 trains 8B at {speed['8B', 'tp 8']} % of the speed of eight devices, and tp 2 at "
        f"{speed['8B', 'dp 4 x tp 2']} % of two. 32B reaches {speed['32B', 'tp 8']} % and "
        f"{speed['32B', 'dp 4 x tp 2']} %.",
        f"a sum of 4,096 rows takes {sum_over(16, 4096) / sum_over(8, 4096):.1f} times as long as with tp 8 in "
        f"one host, one of 64 decoded rows {sum_over(16, 64) / sum_over(8, 64):.1f} times",
        f"hides all but {repeated('fsdp 8', 4096)} % inside a host",
        f"as 32B has them, {exposed('fsdp 8', '32B')} % are exposed",
        f"With passes of 1,024 tokens {repeated('fsdp 8', 1024)} % of a step are exposed",
        f"2,048 tokens for 8B, which exposes {exposed('fsdp 64', '8B', 1 << 20)} to {exposed('fsdp 64')} %",
        f"fsdp 8 x tp 8 has one port for each gather and exposes {exposed('fsdp 8 x tp 8')} % for 8B",
        f"8B decodes {decoded(1) / decoded(2):.2f} times as fast on two devices, and "
        f"{decoded(1) / decoded(8):.2f} times as fast on eight",
        f"keeps {kept[0].layers * kept[0].saved / 1e6:.1f} MB per token of 8B and "
        f"{kept[1].layers * kept[1].saved / 1e6:.1f} MB per token of 32B",
        f"{twice.checkpointed} of 32B's layers are computed twice and half of the ranks are idle: training takes "
        f"{sum(both[1][1].values()) / sum(both[0][1].values()):.1f} times as long",
        f"8B exposes {100 * model.share_exposed(planned('dp 8 x fsdp 8', '8B', 1 << 18)[1]):.1f} % then. 32B "
        f"exposes {100 * model.share_exposed(planned('dp 8 x fsdp 8', '32B', 1 << 18)[1]):.1f} %",
        f"GPUs too: {exposed('fsdp 8', '32B', 131072, '--role', 'both')} %")
    assert [sentence for sentence in sentences if sentence not in text] == []
    assert exposed("dp 8 x fsdp 8", "32B", 1 << 20, "--role", "both") == "6"


def test_missed_rows_are_as_the_page_sums_them_up():
    """Of the default arguments' rows: which mesh misses, and by how much."""
    rows = [(name, step, model.share_exposed(parts(name, shape, step)))
            for shape, _, name, _, step in model.cases(ARGS, MACHINE)]
    tp = [share for name, _, share in rows if "tp" in name]
    assert (f"{100 * min(tp):.0f} to {100 * max(tp):.0f} %" in page("scaling.md")) and min(tp) > model.GOAL
    others = [share for name, _, share in rows if "tp" not in name and name != "fsdp 64"]
    assert max(others) < 0.075  # "lose at most 7 %"
    assert {name for name, step, _ in rows if step.passes[0].idle} == {"fsdp 64"}
    between = [share for name, _, share in rows if name == "fsdp 64"]
    assert min(between) > model.GOAL
    assert max(share for name, _, share in rows if name == "dp 64") <= model.GOAL


@pytest.mark.parametrize("name", ["dp 8", "fsdp 8", "tp 8", "dp 2 x fsdp 2 x tp 2", "dp 8 x fsdp 4 x tp 2"])
def test_links_without_cost_expose_nothing(name):
    free = dataclasses.replace(MACHINE, nvlink=1e30, nic=1e30, nvlink_seconds=0, nic_seconds=0,
                               round_seconds=0)
    assert model.share_exposed(parts(name, machine=free)) == pytest.approx(0, abs=1e-9)
    assert model.share_exposed(parts(name)) > 0


def test_a_sum_of_gradients_by_hand():
    num_bytes = 4 * model.SHAPES["8B"].lora(*Lora())
    pieces = -(-num_bytes // (32 << 20))
    # Pass by pass: two short calls, and the results of 4096 tokens from each of the others.
    of_pass = 3 * 10e-6 + (2 * 24 * 7 / 8 + 7 * 2 * 4 * 4096) / 360e9
    assert parts("dp 8")["dp"] == pytest.approx(2 * num_bytes * 7 / 8 / 360e9 + pieces * 10e-6 + of_pass)
    # All eight ports of each host; the number of hosts doubles three times.
    of_pass = 3 * 100e-6 + (2 * 24 * 63 / 64 + 63 * 2 * 4 * 4096) / 320e9
    assert parts("dp 64")["dp"] == pytest.approx(2 * num_bytes * 63 / 64 / 320e9 + pieces * 100e-6 + of_pass)


def test_sums_of_tp_by_hand():
    shape = model.SHAPES["8B"]
    sums = (4 * shape.layers + 2) * 2 * 4 * 4096 * shape.hidden * 7 / 8
    softmax = 7 * 3 * 8 * 4096
    of_step = 2 * 4 * shape.summed_lora(32, True) * 7 / 8 + 7 * 8
    # 2^24 logits of 18,992 tokens are 883 rows; 4 pieces of gradients.
    step, of_step_by_model = planned("tp 8", "8B", 4096)
    assert step.passes == (Pass(4096, chunks=5),)
    calls = 4 * shape.layers + 2 + 5 + 4 + 1
    assert of_step_by_model["tp"] == pytest.approx((sums + softmax + of_step) / 360e9 + calls * 10e-6)


def test_gathers_hide_behind_the_block_before_them():
    shape, mesh = model.SHAPES["8B"], model.axes("fsdp 8")
    link = model.link_of(MACHINE, 8, 1)

    def seconds(tokens, machine=MACHINE):
        compute = model.Compute(machine, shape, mesh, tokens, 2048)
        return model.fsdp_seconds(link, shape, mesh, compute, Pass(tokens, 1), model.Change())

    uses = formula.BaseWeights(shape, mesh, formula.BF16, panel_rows=1).uses(2)
    total = sum(link.time(use.waited) + link.time(use.ahead) for use in uses)
    for tokens in (512, 1024, 4096):
        assert sum(seconds(tokens)) == pytest.approx(total)
    # Nothing computes beside the embedding and what follows its last piece.
    embedding = sum(link.time(use.waited) + link.time(use.ahead) for use in uses if use.step == "embed")
    assert seconds(1 << 20)[0] == pytest.approx(
        embedding + sum(link.time(use.waited) for use in uses if use.step != "embed"))
    assert seconds(1)[0] == pytest.approx(total, rel=1e-2)


def test_rounds_by_hand():
    # After 16 chunks of the head, at the pass's end and beginning, and twice in the step.
    assert parts("dp 8")["rounds"] == pytest.approx((16 + 2 + 2) * 100e-6)
    # A layer computes 150 tokens in less time than a round takes: 22 us forward, 24 us backward.
    compute = model.Compute(MACHINE, model.SHAPES["8B"], model.axes("tp 8"), 150, 2048)
    units = 36 * (200e-6 - compute.layer("forward") - compute.layer("backward"))
    assert 0 < compute.layer("forward") < compute.layer("backward") < 30e-6
    assert parts("tp 8", step=work(150, 1))["rounds"] == pytest.approx(units + 5 * 100e-6)


def test_blocks_of_a_pass_compute_what_its_tokens_do():
    shape, mesh = model.SHAPES["32B"], model.axes("tp 2")
    compute = model.Compute(MACHINE, shape, mesh, 4096, 2048)
    blocks = shape.layers * (compute.layer("forward") + compute.layer("backward"))
    assert blocks + compute.head(False) + compute.head(True) == pytest.approx(compute.all)


@pytest.mark.parametrize("name, change", [
    ("dp 64", {"dp_beside": True}), ("dp 64", {"dp_bytes": 0.5}), ("tp 8", {"tp_bytes": 0.5}),
    ("tp 8", {"tp_beside": True}), ("fsdp 8", {"embeds_rows": True}), ("dp 8", {"units_a_round": 4})])
def test_each_change_exposes_less(name, change):
    assert model.share_exposed(parts(name, **change)) < model.share_exposed(parts(name))


def test_a_layer_that_is_computed_twice_by_hand():
    """All of its forward step but the last product and sum."""
    shape, twice = model.SHAPES["32B"], work(checkpointed=3)
    flops = 2 * 5120 * (2 * 8192 + 2 * 1024 + 2 * 25600) * (1 + shape.lora(*Lora()) / model.numbers(shape))
    seconds = 3 * (flops + 2 * 8192 * 2048) * 4096 / MACHINE.flops
    once, again = parts("tp 2", "32B"), parts("tp 2", "32B", twice)
    assert again["compute"] - once["compute"] == pytest.approx(seconds / 2)
    assert again["tp"] - once["tp"] == pytest.approx(3 * (4 * 4096 * 5120 / 360e9 + 10e-6))
    # Attention's matrices arrive once more; those of the MLP arrive for the repetition and stay.
    weights = model.base_weights(shape, model.axes("fsdp 2"))
    once, again = (sum(use.waited.bytes + use.ahead.bytes for use in weights.uses(2, layers)) for layers in (0, 3))
    assert again - once == pytest.approx(3 * 2 * 5120 * (2 * 8192 + 2 * 1024) / 2)


def test_rows_a_worker_can_take_in_a_step_by_hand():
    # A layer of 8B computes 256 rows in 222 us. 20 ms / 1.5 are 15,000 rows.
    assert model.tokens_per_step(MACHINE, model.SHAPES["8B"], model.axes("dp 8")) == 8192
    layer = 256 * (2 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 12288) + 2 * 4096 * 256) / MACHINE.flops
    # Attention's 84 MB arrive first, then 101 MB while gate and up compute.
    gathers = (84e6 + 101e6) * 63 / 64 / 320e9 + 2 * 100e-6 - 256 * 4 * 4096 * 12288 / MACHINE.flops
    rows = 0.02 / 1.5 / ((layer + gathers) / 256)
    assert 2048 < rows < 4096
    assert model.tokens_per_step(MACHINE, model.SHAPES["8B"], model.axes("fsdp 64")) == 2048


def test_a_mesh_needs_memory_for_its_weights():
    assert planned("dp 8")[0] is not None
    args = model.parse(["--memory", "70"])
    for name, runs in (("dp 8", False), ("dp 4 x fsdp 2", True)):
        step = model.work_of(args, model.machine_of(args), model.SHAPES["32B"], model.axes(name), 131072)
        assert (step is not None) == runs, name


def test_only_neighbours_of_a_host_use_nvlink():
    assert model.link_of(MACHINE, 8, 1) == model.Link(360e9, pytest.approx(10e-6))
    assert model.link_of(MACHINE, 4, 2) == model.Link(360e9, pytest.approx(10e-6))
    assert model.link_of(MACHINE, 64, 1) == model.Link(320e9, pytest.approx(100e-6))
    # One rank of each of eight hosts.
    assert model.link_of(MACHINE, 8, 8) == model.Link(40e9, pytest.approx(100e-6))
