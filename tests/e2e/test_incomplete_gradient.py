"""A failed forward_backward: no optim_step applies the rest of its gradient in silence, and the client
goes on (docs/api.md)."""

import json
import math
import socket

import pytest
import tinker
from tinker import types

from support.raw_api import ADAM, RawApi, RawModel
from support.sdk import resolved

STEP = {**ADAM, "learning_rate": 1e-2}
SDK_ADAM = types.AdamParams(learning_rate=1e-2)
ROW = [30, 31, 32, 33, 34, 35, 36, 37]
MAX_DATUMS = 1024  # that the SDK sends in one request


@pytest.fixture
def model(lathe):
    api = RawApi(lathe)
    yield RawModel(api)
    api.close()


def send_step(model):
    return model.api.made("optim_step", {"model_id": model.model_id,
                                         "seq_id": model.next_seq_id(), "adam_params": STEP})


def send_bad_batch(model):
    return model.forward_backward(data=[]).json()


def poll_and_leave(model, future):
    """Sends a poll whose last byte comes with the end of the connection, and reads nothing."""
    body = json.dumps({"request_id": future["request_id"]}).encode()
    request = (b"POST /api/v1/retrieve_future HTTP/1.1\r\nHost: localhost\r\n"
               b"Content-Type: application/json\r\n"
               + f"X-API-Key: {model.api.key}\r\n".encode()
               + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    with socket.create_connection(("127.0.0.1", model.api.server.port), timeout=30) as connection:
        connection.sendall(request, socket.MSG_MORE)  # held until the close below


def refuses(model, future, seq_id):
    result = model.api.result(future)
    return f"forward_backward seq {seq_id} failed" in result.get("error", "")


def test_a_poll_that_is_never_read_does_not_make_the_failure_known(model):
    failing = send_bad_batch(model)
    poll_and_leave(model, failing)
    model.loss()  # the poll had its turn before this answer
    model.accumulate()
    assert refuses(model, send_step(model), 1)
    assert "error" in model.api.result(failing)
    model.accumulate()
    assert "error" not in model.api.result(send_step(model))


def test_a_read_failure_behind_a_good_batch_spoils_the_step_once(model):
    model.accumulate()
    assert "error" in model.api.result(send_bad_batch(model))
    assert refuses(model, send_step(model), 2)
    model.accumulate()
    metrics = model.api.result(send_step(model))["metrics"]
    assert metrics["grad_norm"] > 0


def test_a_mended_batch_goes_on(model):
    for _ in range(20):
        assert "error" in model.api.result(send_bad_batch(model))
        mended = model.forward_backward().json()
        step = send_step(model)
        assert "error" not in model.api.result(mended)
        assert "error" not in model.api.result(step)


# ---- the stock SDK

def new_client(lathe):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)
    return resolved(service.create_lora_training_client(lathe.model_name, rank=4, seed=7))


def row_datum(tokens, target=None):
    targets = tokens[1:] if target is None else [*tokens[1:-1], target]
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                       loss_fn_inputs={"target_tokens": targets,
                                       "weights": [1.0] * len(targets)})


GOOD = row_datum(ROW)
BAD = row_datum(ROW, target=10**6)


def loss_of(client):
    return client.forward([GOOD], "cross_entropy").result().metrics["loss:sum"]


@pytest.mark.each_sdk
def test_a_pipelined_loop_loses_the_step_of_a_failed_batch_and_goes_on(lathe):
    client, twin = new_client(lathe), new_client(lathe)
    for batches in ([GOOD], [GOOD, BAD], [GOOD]):
        training = [client.forward_backward([datum], "cross_entropy") for datum in batches]
        step = client.optim_step(SDK_ADAM)
        training[0].result()
        if len(batches) == 1:
            step.result()
            continue
        with pytest.raises(tinker.RequestFailedError, match="1000000"):
            training[1].result()
        with pytest.raises(tinker.RequestFailedError, match="seq 4 failed"):
            step.result()
    for _ in range(2):
        twin.forward_backward([GOOD], "cross_entropy").result()
        twin.optim_step(SDK_ADAM).result()
    assert math.isclose(loss_of(client), loss_of(twin), rel_tol=1e-6)


@pytest.mark.each_sdk
@pytest.mark.parametrize("bad_at", [0, MAX_DATUMS, 2 * MAX_DATUMS])
def test_no_part_of_a_batch_in_several_requests_is_applied(lathe, bad_at):
    client = new_client(lathe)
    datums = [row_datum([30, 31, 32])] * (2 * MAX_DATUMS + 1)
    before = loss_of(client)
    batch = list(datums)
    batch[bad_at] = row_datum([30, 31, 32], target=10**6)
    training = client.forward_backward(batch, "cross_entropy")
    step = client.optim_step(SDK_ADAM)
    with pytest.raises(tinker.RequestFailedError, match="1000000"):
        training.result()
    with pytest.raises(tinker.RequestFailedError, match="send the whole batch"):
        step.result()
    assert loss_of(client) == before
    training = client.forward_backward(datums, "cross_entropy")
    step = client.optim_step(SDK_ADAM)
    training.result()
    step.result()
    assert loss_of(client) != before
