"""Changes come by themselves: without questions, over the death of engine and gateway, or by polling."""

import json

import httpx
import pytest
from support.dashboard import address_of, sign_in, train

pytestmark = pytest.mark.slow

# Notes what the page asks. With `refused`, the server seems to have no events.
RECORDER = """(() => {
  const fetchReal = window.fetch;
  window.asked = [];
  window.fetch = (path, options) => {
    window.asked.push(decodeURIComponent(path));
    if (%s && path.startsWith('/ui/api/v1/events')) {
      return Promise.resolve(new Response('{}', {status: 503}));
    }
    return fetchReal(path, options);
  };
})()"""
CARD = "[...document.querySelectorAll('.metric')].find(({ariaLabel}) => ariaLabel === 'reward/mean')"
LABEL = f"{CARD}?.querySelector('.chart')?.ariaLabel"
QUESTIONS = "window.asked.filter((path) => path.includes('/metrics?names')).length"


def append(lathe, run, step, value):
    httpx.post(f"{lathe.url}/api/v1/training_runs/{run}/metrics", headers={"X-API-Key": lathe.api_key},
               json={"points": [{"name": "reward/mean", "step": step, "value": value}]}).raise_for_status()


@pytest.fixture
def run(lathe):
    run = train(lathe, steps=1, display_name="live")
    append(lathe, run, 0, 0.25)
    append(lathe, run, 1, 0.5)
    return run


def opened(browser, lathe, run, refused=False):
    page = browser.open(lathe.url + "/ui/key")
    sign_in(page, lathe.api_key)
    page.command("Page.addScriptToEvaluateOnNewDocument", source=RECORDER % json.dumps(refused))
    page.go(lathe.url + address_of(run))
    page.wait_for(f"{LABEL} === 'reward/mean rose from 0.25 to 0.5 over steps 0 to 1'")
    page.evaluate("window.isTheSamePage = true")
    return page


@pytest.fixture
def page(browser, lathe, run):
    page = opened(browser, lathe, run)
    page.wait_for("window.asked.some((path) => path.startsWith('/ui/api/v1/events') && path.includes('train'))")
    yield page
    assert page.evaluate("window.isTheSamePage"), "the page was loaded again"
    page.close()


def test_new_points_are_drawn_without_a_question(page, lathe, run):
    append(lathe, run, 2, 0.75)
    page.wait_for(f"{LABEL} === 'reward/mean rose from 0.25 to 0.75 over steps 0 to 2'")
    before = page.evaluate(QUESTIONS)
    for step in range(3, 8):
        append(lathe, run, step, step / 4)
        page.wait_for(f"{LABEL} === 'reward/mean rose from 0.25 to {step / 4:g} over steps 0 to {step}'")
    # The point at the newest step replaces it.
    append(lathe, run, 7, 0.125)
    page.wait_for(f"{LABEL} === 'reward/mean fell from 0.25 to 0.125 over steps 0 to 7'")
    assert page.evaluate(QUESTIONS) == before
    assert page.evaluate("document.querySelector('.figures dd').innerText").startswith("0.125")


def test_a_metric_that_is_new_gets_a_chart(page, lathe, run):
    httpx.post(f"{lathe.url}/api/v1/training_runs/{run}/metrics", headers={"X-API-Key": lathe.api_key},
               json={"points": [{"name": "brand/new", "step": 0, "value": 1.5}]}).raise_for_status()
    page.wait_for("[...document.querySelectorAll('.metric')].some(({ariaLabel}) => ariaLabel === 'brand/new')")


def test_without_events_the_page_polls(browser, lathe, run):
    page = opened(browser, lathe, run, refused=True)
    try:
        append(lathe, run, 2, 0.75)
        page.wait_for(f"{LABEL} === 'reward/mean rose from 0.25 to 0.75 over steps 0 to 2'")
    finally:
        page.close()


@pytest.mark.parametrize("process", ["engine", "gateway"])
def test_a_killed_process_is_told_and_the_page_goes_on(page, lathe, run, process):
    old = lathe.kill(process)
    lathe.wait_restarted(process, old)
    page.wait_for(f"document.querySelector('.incident')?.innerText.includes('The {process} was restarted')")
    page.wait_for("!document.querySelector('.notice')")
    append(lathe, run, 2, 0.75)
    page.wait_for(f"{LABEL} === 'reward/mean rose from 0.25 to 0.75 over steps 0 to 2'")
    page.evaluate("document.querySelector('.incident button').click()")
    page.wait_for("!document.querySelector('.incident')")
