"""The model of many GPUs: its parts by hand, and the pages that print it."""

import dataclasses
import pathlib
import re

import pytest
import scaling_model as model
from support import rank_traffic as formula

ROOT = pathlib.Path(__file__).resolve().parents[1]
MACHINE = model.machine_of(model.parse([]))
ONE_PASS = (4096, 1, 2048, 1)


def parts(name, shape="8B", work=ONE_PASS, machine=MACHINE, **change):
    return model.training(machine, model.SHAPES[shape], model.axes(name), work,
                          model.Change(**change))[0]


def table_rows(text):
    return [line for line in text.splitlines() if line.startswith("|") and "---" not in line]


def test_the_pages_have_what_the_tool_prints(capsys):
    model.main([])
    printed = table_rows(capsys.readouterr().out)
    assert len(printed) > 60
    page = (ROOT / "docs/measurements/cost_model.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in printed if row not in page] == []
    rows = re.findall(r"^\| (?:8B|32B) \|.*", (ROOT / "docs/scaling.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) > 10
    assert [row for row in rows if row not in printed] == []


@pytest.mark.parametrize("name", ["dp 8", "fsdp 8", "tp 8", "dp 2 x fsdp 2 x tp 2", "dp 8 x fsdp 4 x tp 2"])
def test_links_without_cost_expose_nothing(name):
    free = dataclasses.replace(MACHINE, nvlink=1e30, nic=1e30, nvlink_seconds=0, nic_seconds=0,
                               round_seconds=0)
    assert model.share_exposed(parts(name, machine=free)) == pytest.approx(0, abs=1e-9)
    assert model.share_exposed(parts(name)) > 0


def test_a_sum_of_gradients_by_hand():
    num_bytes = 4 * model.SHAPES["8B"].lora(model.LORA_RANK, True)
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
    calls = 4 * shape.layers + 2 + 16 + 4 + 1  # 16 chunks of the head, 4 pieces of gradients
    assert parts("tp 8")["tp"] == pytest.approx((sums + softmax + of_step) / 360e9 + calls * 10e-6)


def test_gathers_hide_behind_the_block_before_them():
    shape, mesh = model.SHAPES["8B"], model.axes("fsdp 8")
    link = model.link_of(MACHINE, 8, 1)

    def seconds(tokens, machine=MACHINE):
        compute = model.Compute(machine, shape, mesh, tokens, 2048)
        return model.fsdp_seconds(link, shape, mesh, compute, 1, model.Change())

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
    assert parts("tp 8", work=(150, 1, 2048, 1))["rounds"] == pytest.approx(units + 5 * 100e-6)


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


def test_a_mesh_needs_memory_for_its_weights():
    assert not model.fits(MACHINE, model.SHAPES["32B"], model.axes("dp 8"))
    assert model.fits(MACHINE, model.SHAPES["32B"], model.axes("dp 4 x fsdp 2"))
    assert model.fits(MACHINE, model.SHAPES["8B"], model.axes("dp 8"))


def test_only_neighbours_of_a_host_use_nvlink():
    assert model.link_of(MACHINE, 8, 1) == model.Link(360e9, pytest.approx(10e-6))
    assert model.link_of(MACHINE, 4, 2) == model.Link(360e9, pytest.approx(10e-6))
    assert model.link_of(MACHINE, 64, 1) == model.Link(320e9, pytest.approx(100e-6))
    # One rank of each of eight hosts.
    assert model.link_of(MACHINE, 8, 8) == model.Link(40e9, pytest.approx(100e-6))
