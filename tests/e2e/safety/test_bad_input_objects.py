"""Rows 37 to 48 of the bad-input table: sampling, names and objects."""

import pytest

from bad_input_table import ROWS, row, rows_of
from conftest import refused


@row(37)
def bad_numbers_of_samples(w):
    for count in (0, 10**9):
        refused(w.sample(num_samples=count), 400, "invalid_field", f"num_samples is {count}",
                "1 to 1024")


@row(38)
def bad_sampling_values(w):
    refused(w.sample(temperature=-0.5), 400, "invalid_field", "temperature is -0.5", "at least 0")
    refused(w.sample(top_p=0), 400, "invalid_field", "top_p is 0", "(0, 1]")
    refused(w.sample(max_tokens=10**9), 400, "too_long", "context window", "1000000000 max_tokens")


@row(39)
def bad_stops(w):
    refused(w.sample(stop=["x"] * 65), 400, "invalid_field", "65 strings", "limit is 64")
    refused(w.sample(stop=[""]), 400, "invalid_field", "stop[0] has 0 bytes")


@row(41)
def images(w):
    """No kind of image is taken, so none is decoded."""
    refused(w.sample(prompt=[{"type": "image", "data": "!", "format": "png"}]), 400,
            "unsupported_chunk", "image")


@row(42)
def images_elsewhere(w):
    answer = w.sample(prompt=[{"type": "image_asset_pointer", "location": "http://169.254.169.254/",
                               "format": "png"}])
    refused(answer, 400, "unsupported_chunk", "image_asset_pointer")
    assert "169.254" not in answer.text


@row(43)
def bad_names(w):
    for name in ("../../etc", "a\x00b", ".hidden", "x" * 129, "a\u202eb"):
        refused(w.post("save_weights", {"model_id": w.model.model_id, "seq_id": 1, "path": name}),
                400, "bad_name", "128", field="path")


@row(44)
def bad_tinker_paths(w):
    refused(w.post("weights_info", {"tinker_path": "tinker://a/weights/../b"}), 400, "bad_path",
            "expected tinker://", field="tinker_path")
    refused(w.post("weights_info", {"tinker_path": "tinker://absent:train:0/weights/b"}), 404,
            "not_found")


@row(45)
def bad_lifetimes_and_pages(w):
    refused(w.post("save_weights", {"model_id": w.model.model_id, "seq_id": 1, "path": "a",
                                    "ttl_seconds": -1}), 400, "bad_ttl", "-1", field="ttl_seconds")
    for limit in (-1, 10**9):
        refused(w.api.get(f"sessions?limit={limit}"), 400, "bad_page", f"limit is {limit}",
                "1 to 1000", field="limit")


@row(46)
def large_metadata(w):
    refused(w.post("create_session", {"tags": [], "user_metadata": {"k": "v" * 16385}}), 400,
            "bad_metadata", "16386", "16384")


@pytest.mark.parametrize("number", rows_of(__name__))
def test_row(world, number):
    ROWS[number](world)
