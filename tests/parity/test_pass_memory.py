"""Memory that a training pass reserves is what it needs at most, and not much more."""

import make_tiny_model
import pytest
from families import FAMILIES
from parity_setup import VARIANTS
from reference import Loss


@pytest.mark.parametrize("variant", ["tiny", "llama_9_heads", *FAMILIES])
def test_a_pass_needs_what_it_reserves(tmp_path, run_driver, variant):
    # Layers keep most of the memory, as in real models. Estimates of one step are less tight.
    make_tiny_model.main(["--out", str(tmp_path / "deep"), *VARIANTS[variant], "--layers", "8"])
    loss = Loss("cross_entropy")
    data = [loss.datum(seed, 512, 768) for seed in range(2)]
    ops = [{"op": "create", "model": "m", "rank": 8},
           {"op": "train", "name": "t",
            "requests": [{"id": "r", "model": "m", "loss": loss.spec, "data": data}]}]
    counters = run_driver(tmp_path / "deep", ops, head_chunk_elements=16 * 768)[1]["counters"]
    assert counters["passes"] == 1
    assert counters["peak_bytes"] <= counters["reserved_bytes"] <= 1.3 * counters["peak_bytes"]
