"""Three tasks, as a person does them who sees the dashboard for the first time: by what can be read on the
page, from its first page on. Counts clicks, and seconds without thinking, into
build/test-results/dashboard/tasks.json."""

import json
import time

import pytest
import tinker
from support.dashboard import screenshot_path, sign_in
from support.group_service import GroupService
from support.lathe_server import tiny_model
from tinker import types

pytestmark = pytest.mark.slow

TOKENS = list(range(1, 17))


class Person:
    """Clicks on what has a text. Knows neither addresses nor keys."""

    def __init__(self, page, task):
        self.page, self.task = page, task
        self.clicks, self.began = 0, time.monotonic()

    def click(self, text, where="document"):
        """On the first link, button, box or heading of a fold with this text or label."""
        found = ("[...(%s?.querySelectorAll('a, button, summary, input[type=checkbox]') ?? [])].find((one) =>"
                 " one.offsetParent !== null && (one.innerText.trim() === %s || one.ariaLabel === %s))"
                 % (where, json.dumps(text), json.dumps(text)))
        self.page.wait_for(found)
        self.page.evaluate(found + ".click()")
        self.clicks += 1

    def reads(self, text):
        """Waits until the page says it."""
        self.page.wait_for(f"document.querySelector('main').innerText.includes({json.dumps(text)})")

    def has_done(self, most_clicks):
        seconds = time.monotonic() - self.began
        self.page.screenshot(screenshot_path(f"task-{self.task}"))
        path = screenshot_path("").parent / "tasks.json"
        done = json.loads(path.read_text()) if path.exists() else {}
        done[self.task] = {"clicks": self.clicks, "seconds": round(seconds, 2)}
        path.write_text(json.dumps(done, indent=1) + "\n")
        assert self.clicks <= most_clicks


@pytest.fixture(scope="module")
def service():
    with GroupService({"a": (tiny_model(), "tiny"), "b": (tiny_model(), "tiny")}) as running:
        yield running


@pytest.fixture
def person(browser, service, request):
    made = service.lathe("keys", "create", "--tenant", "ranks", "--scope", "operator").stdout
    page = browser.open(service.url + "/ui")
    sign_in(page, next(word for word in made.split() if word.startswith("tml-")))
    yield Person(page, request.function.__name__.removeprefix("test_"))
    page.close()


def new_run(service, name):
    client = tinker.ServiceClient(base_url=service.url, api_key=service.api_key, display_name=name)
    return client.create_lora_training_client("tiny", rank=2, seed=1).result()


def step(model, rate):
    datum = types.Datum(model_input=types.ModelInput.from_ints(TOKENS[:-1]),
                        loss_fn_inputs={"target_tokens": TOKENS[1:], "weights": [1.0] * (len(TOKENS) - 1)})
    forward = model.forward_backward([datum], "cross_entropy")
    return forward, model.optim_step(types.AdamParams(learning_rate=rate))


def card(name):
    return f"[...document.querySelectorAll('.card')].find(({{ariaLabel}}) => ariaLabel === {json.dumps(name)})"


def test_compare_two_learning_rates(service, person):
    for rate in (1e-3, 1e-2):
        model = new_run(service, f"rate {rate}")
        for _ in range(3):
            for future in step(model, rate):
                future.result()
    person.click("Runs")
    person.click("Compare rate 0.001")
    person.click("Compare rate 0.01")
    person.click("Compare 2 runs")
    # One chart has both losses, and a table the rates.
    person.page.wait_for(f"{card('loss:sum')}?.querySelector('canvas')")
    table = f"{card('Last values')}?.innerText"
    person.page.wait_for(table)
    shown = person.page.evaluate(f"Object.fromEntries([...{card('Last values')}.querySelectorAll('tbody tr')]"
                                 ".map((row) => [row.children[0].innerText, [...row.children].slice(1)"
                                 ".map(({innerText}) => innerText.split(/\\s/)[0])]))")
    assert shown["optim_step/learning_rate"] == ["0.001", "0.01"], shown
    person.has_done(most_clicks=4)


def test_take_a_rank_out_of_service(service, person):
    model = new_run(service, "moves")
    home = service.home_of(model.model_id)
    person.click("Workers")
    person.click("Take out of service", where=card(home))
    person.page.wait_for("document.querySelector('dialog[open]')?.innerText.includes('None is lost')")
    person.click("Take out of service", where="document.querySelector('dialog')")
    person.reads("Nothing is left here. Its workers can be stopped.")
    person.has_done(most_clicks=3)
    for future in step(model, 1e-3):
        future.result()
    service.lathe("group", "resume", home)


def test_find_why_my_run_waits(service, person):
    model = new_run(service, "stuck")
    for future in step(model, 1e-3):
        future.result()
    for name in service.names:
        service.remove(name)
    futures = step(model, 1e-3)
    person.click("stuck")
    person.page.wait_for(card("Why it waits"))
    text = person.page.evaluate(f"{card('Why it waits')}.innerText")
    assert "worker" in text and "Next is seq_id" in text, text
    person.has_done(most_clicks=1)
    for name in service.names:
        service.bring_back(name)
    for future in futures:
        future.result()
