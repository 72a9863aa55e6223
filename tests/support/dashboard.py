"""What the tests of the dashboard share: a run with hostile names, signing in, places."""

import json

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


def series(name, values, steps=None, spread=0.0, count=1):
    """A series as the API answers it; a value None has no number."""
    steps = list(range(len(values))) if steps is None else steps
    least = [None if value is None else value - spread for value in values]
    largest = [None if value is None else value + spread for value in values]
    return {"name": name, "unit": "", "count": len(values) * count, "last_step": steps[-1], "last_value": values[-1],
            "last_time": "2026-01-01T00:00:00Z", "level": 0, "steps": steps,
            "times_ms": [1_767_225_600_000 + 1000 * step for step in steps],
            "min": least, "max": largest, "mean": values, "counts": [count] * len(values)}


_ANSWERING = """(() => {
  const answers = %s;
  const fetchReal = window.fetch;
  let numInFlight = 0;
  window.asked = [];
  window.mostInFlight = 0;
  window.fetch = async (path, options) => {
    const part = Object.keys(answers).find((one) => decodeURIComponent(path).includes(one));
    if (part === undefined) return fetchReal(path, options);
    window.asked.push(decodeURIComponent(path));
    window.mostInFlight = Math.max(window.mostInFlight, ++numInFlight);
    await new Promise((resolve) => setTimeout(resolve, 30));
    --numInFlight;
    return new Response(JSON.stringify(answers[part]), {headers: {"Content-Type": "application/json"}});
  };
})()"""


def answer_instead(page, answers):
    """From the next load on, the page's calls of an address that has a part in `answers` get that answer.
    Such calls are in `asked`; `mostInFlight` says how many there were at once."""
    page.command("Page.addScriptToEvaluateOnNewDocument", source=_ANSWERING % json.dumps(answers))


def address_of(run_id):
    return "/ui/runs/" + run_id.replace(":", "%3A")
