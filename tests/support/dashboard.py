"""What the tests of the dashboard share: a run with hostile names, signing in, places."""

from support.lathe_server import ROOT

SOURCE = ROOT / "services/api-gateway/dashboard"
# A page might take it for markup, a script or an order of writing.
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>alert(1)</script> \u202egnp.exe 😀"


def train(server, steps=3, **session):
    """A run of `steps` steps and one checkpoint. Returns its id."""
    import tinker
    from tinker import types
    client = tinker.ServiceClient(base_url=server.url, api_key=server.api_key, **session)
    training = client.create_lora_training_client(base_model=server.model_name, rank=4).result()
    tokens = list(range(1, 17))
    datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * 15})
    for _ in range(steps):
        forward = training.forward_backward([datum], "cross_entropy")
        step = training.optim_step(types.AdamParams(learning_rate=1e-3))
        forward.result()
        step.result()
    training.save_state("step-3").result()
    return training.model_id


def sign_in(page, key):
    page.wait_for("document.querySelector('input[name=key]')")
    page.evaluate("document.querySelector('input[name=key]').focus()")
    page.type(key)
    page.press("Enter")
    page.wait_for("!document.querySelector('input[name=key]')")


def screenshot_path(name):
    return ROOT / "build/test-results/dashboard" / f"{name}.png"
