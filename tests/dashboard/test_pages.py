"""Every page in both themes and two widths, by keyboard, with hostile names, and over the death of the
gateway."""

from types import SimpleNamespace

import httpx
import pytest
from support.dashboard import HOSTILE, SOURCE, screenshot_path, sign_in, train

pytestmark = pytest.mark.slow

TABS = ["", "?tab=requests", "?tab=checkpoints", "?tab=config"]


def addresses(run_id):
    path = "/ui/runs/" + run_id.replace(":", "%3A")
    return {"overview": "/ui", "runs": "/ui/runs", "checkpoints": "/ui/checkpoints", "keys": "/ui/keys",
            "tenants": "/ui/tenants", "users": "/ui/users", "login": "/ui/login", "usage": "/ui/usage", "audit": "/ui/audit", "queue": "/ui/queue", "workers": "/ui/workers", "health": "/ui/health",
            "compare": f"/ui/compare?runs={run_id},{run_id.replace(':train:0', ':train:1')}", "nonsense": "/ui/nonsense", **{f"run{tab.replace('?tab=', '-')}": path + tab for tab in TABS}}


# Text of a page that has its data.
READY = "document.querySelector('main') && !document.querySelector('[role=status]')?.innerText.includes('Loading')" \
        " && document.querySelector('main .card, main table')"


def show(page, lathe, address):
    """By a link of the page, because a fresh load would be another test."""
    page.go(lathe.url + address)
    page.wait_for(READY)
    page.wait_for("!document.querySelector('.metric') || document.querySelector('.metric canvas')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_each_page_is_accessible_and_keeps_the_policy(signed_in, lathe, run_id, dark, width):
    page = signed_in
    axe = (SOURCE / "node_modules/axe-core/axe.min.js").read_text()
    page.resize(width)
    page.set_dark(dark)
    try:
        for name, address in addresses(run_id).items():
            show(page, lathe, address)
            page.screenshot(screenshot_path(f"{name}-{'dark' if dark else 'light'}-{width}"))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is too wide"
            assert page.complaints() == [], name
            page.evaluate(axe + "; 0")
            found = page.evaluate(
                "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']})"
                ".then(({violations}) => violations.map(({id, nodes}) =>"
                " id + ': ' + nodes.map(({html}) => html).join(' ')))")
            assert found == [], f"{name}: {found}"
            # axe itself may meet the policy.
            page.complaints().clear()
    finally:
        page.resize(1280)
        page.set_dark(False)


def test_a_run_shows_the_requests_that_the_engine_has(signed_in, lathe, run_id):
    page = signed_in
    show(page, lathe, addresses(run_id)["run"])
    figures = page.wait_for("Object.fromEntries([...document.querySelectorAll('.figures > div')]"
                            ".map((item) => [item.children[0].innerText, item.children[1].innerText]))")
    assert (figures["Steps"], figures["Failed"]) == ("3", "0"), figures
    stage = "[...document.querySelectorAll('.card')].find(({ariaLabel}) => ariaLabel === 'optim_step')"
    page.wait_for(f"{stage}?.querySelector('canvas')")
    # The table twin has a row for each request.
    page.evaluate(f"[...{stage}.querySelectorAll('button')].find((b) => b.innerText === 'Table').click()")
    page.wait_for(f"{stage}.querySelectorAll('tbody tr').length === 3")
    show(page, lathe, addresses(run_id)["run-requests"])
    shown = page.evaluate("[...document.querySelectorAll('tbody td:first-child')].map(({innerText}) => innerText)")
    assert sum(cell.startswith("optim_step") for cell in shown) == 3, shown


def test_hostile_text_is_text(signed_in, lathe, run_id):
    page = signed_in
    for name, address in addresses(run_id).items():
        show(page, lathe, address)
        assert page.evaluate("document.querySelectorAll('main img, main script, main iframe').length") == 0
        assert "taken" not in page.evaluate("document.title")
        assert page.evaluate("[...document.links].every(({protocol}) => /^https?:$/.test(protocol))")
        if name == "run-config":
            assert "javascript:alert(1)" in page.text()
            assert HOSTILE[:40] in page.evaluate("document.querySelector('main').textContent")
    assert page.complaints() == []


def test_the_keyboard_reaches_every_page(signed_in, lathe, run_id):
    page = signed_in
    show(page, lathe, "/ui")
    for letter, path in [("r", "/ui/runs"), ("q", "/ui/queue"), ("w", "/ui/workers"), ("h", "/ui/health"), ("c", "/ui/checkpoints"), ("k", "/ui/keys"), ("p", "/ui/users"), ("t", "/ui/tenants"), ("u", "/ui/usage"), ("a", "/ui/audit"), ("o", "/ui")]:
        page.press("g")
        page.press(letter)
        page.wait_for(f"location.pathname === '{path}'")
    show(page, lathe, "/ui/runs")
    page.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.type("hostile-project")
    page.wait_for("location.search === '?q=hostile-project'")
    page.evaluate("document.activeElement.blur()")
    page.press("j")
    page.wait_for("document.querySelector('tr[aria-current]')")
    page.press("Enter")
    page.wait_for("location.pathname.startsWith('/ui/runs/')")
    page.press("?")
    page.wait_for("document.querySelector('dialog[open]')")
    page.press("Escape")
    page.wait_for("!document.querySelector('dialog')")


def test_a_checkpoint_is_deleted_only_by_its_name(signed_in, lathe):
    page = signed_in
    doomed = train(lathe, steps=1, display_name="doomed")
    path = f"/ui/runs/{doomed.replace(':', '%3A')}?tab=checkpoints"
    show(page, lathe, path)
    page.wait_for("document.querySelector('button.danger')")
    page.evaluate("document.querySelector('button.danger').click()")
    page.wait_for("document.querySelector('dialog[open]')")
    assert page.evaluate("document.querySelector('dialog button.danger').disabled")
    page.evaluate("document.querySelector('dialog input').focus()")
    page.type("step-3")
    page.evaluate("document.querySelector('dialog button.danger').click()")
    page.wait_for("document.querySelector('main').innerText.includes('No checkpoints')")
    listed = httpx.get(f"{lathe.url}/api/v1/training_runs/{doomed}/checkpoints",
                       headers={"X-API-Key": lathe.api_key}).json()
    assert listed["checkpoints"] == []


def test_a_checkpoint_says_how_it_is_used_and_how_long_it_stays(signed_in, lathe, run_id):
    page = signed_in
    show(page, lathe, addresses(run_id)["run-checkpoints"])
    used = "[...document.querySelectorAll('button')].find(({innerText}) => innerText === 'Use…')"
    page.wait_for(used)
    page.evaluate(f"{used}.focus()")
    page.press("Enter")
    text = page.wait_for("document.querySelector('dialog[open]')?.innerText")
    path = f"tinker://{run_id}/weights/step-3"
    assert f'create_training_client_from_state("{path}")' in text
    assert f"lathe export --merged {path}" in text
    assert "until somebody deletes it" in text
    page.evaluate("(() => { const list = document.querySelector('dialog select'); list.value = '3';"
                  " list.dispatchEvent(new Event('change', {bubbles: true})); })()")
    page.evaluate("[...document.querySelectorAll('dialog button')]"
                  ".find(({innerText}) => innerText === 'Set how long it stays').click()")
    page.wait_for("!document.querySelector('dialog') && document.querySelector('main').innerText.includes('in 7')")
    listed = httpx.get(f"{lathe.url}/api/v1/training_runs/{run_id}/checkpoints",
                       headers={"X-API-Key": lathe.api_key}).json()["checkpoints"]
    assert listed[0]["expires_at"] is not None
    link = httpx.get(f"{lathe.url}/api/v1/training_runs/{run_id}/checkpoints/weights/step-3/archive?redirect=false",
                     headers={"X-API-Key": lathe.api_key})
    assert link.status_code == 200 and httpx.head(link.json()["url"]).status_code == 200
    assert page.complaints() == []


def test_another_tenant_sees_nothing_of_a_run(browser, lathe, run_id):
    page = browser.open(lathe.url + addresses(run_id)["run"])
    try:
        sign_in(page, lathe.create_key("stranger"))
        page.wait_for("document.querySelector('[role=alert]')")
        assert HOSTILE not in page.evaluate("document.body.textContent")
        page.go(lathe.url + "/ui/runs")
        page.wait_for("document.querySelector('main').innerText.includes('No runs yet')")
    finally:
        page.close()


def test_a_wrong_key_is_asked_again(browser, lathe):
    page = browser.open(lathe.url + "/ui/runs")
    try:
        page.wait_for("document.querySelector('input[name=key]')")
        page.evaluate("document.querySelector('input[name=key]').focus()")
        page.type("tml-wrong")
        page.press("Enter")
        page.wait_for("document.querySelector('[role=alert]')?.innerText.includes('does not know')")
        sign_in(page, lathe.api_key)
        page.wait_for("location.pathname === '/ui/runs' && document.querySelector('h1')?.innerText === 'Runs'")
    finally:
        page.close()


def test_a_killed_gateway_is_noticed_and_the_page_recovers_by_itself(signed_in, lathe, run_id):
    page = signed_in
    show(page, lathe, "/ui")
    # A part without any answer yet would rightly say that it has none.
    page.wait_for("/holds[^]*Newest runs[^]*ready[^]*training/.test(document.querySelector('main').innerText)")
    page.evaluate("window.isTheSamePage = true")
    # The page must notice, however fast the gateway is back: its requests fail until it is told.
    page.command("Network.enable")
    old = lathe.kill("gateway")
    page.command("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1,
                 uploadThroughput=-1)
    page.wait_for("document.querySelector('.notice')")
    assert "Newest runs" in page.text()
    assert page.evaluate("document.querySelectorAll('[role=alert]').length") == 0
    lathe.wait_restarted("gateway", old)
    newer = train(lathe, steps=1, display_name="after the kill")
    page.command("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1,
                 uploadThroughput=-1)
    page.wait_for("!document.querySelector('.notice') && document.querySelector('main').innerText.includes('after the kill')")
    assert page.evaluate("window.isTheSamePage"), "the page was loaded again"
    assert newer


def test_the_queue_lists_the_live_runs_of_the_tenant(browser, lathe):
    key = lathe.create_key("queue-tenant")
    tenant = SimpleNamespace(url=lathe.url, api_key=key, model_name=lathe.model_name)
    run = train(tenant, steps=1, display_name="waits")
    page = browser.open(lathe.url + "/ui/queue")
    try:
        sign_in(page, key)
        page.wait_for("document.querySelector('[aria-label=\"Your live runs\"] tbody tr')")
        rows = page.evaluate("[...document.querySelectorAll('[aria-label=\"Your live runs\"] tbody tr')]"
                             ".map((row) => [...row.children].map(({innerText}) => innerText))")
        assert len(rows) == 1
        name, state, unfinished = rows[0][:3]
        assert name.startswith("waits") and run in name
        assert (state, unfinished) == ("ready", "0")
    finally:
        page.close()


@pytest.mark.parametrize("scope", ["read", "admin"])
def test_the_workers_memory_is_for_administrators(browser, lathe, scope):
    page = browser.open(lathe.url + "/ui/workers")
    try:
        sign_in(page, lathe.create_key("operators", [scope]))
        page.wait_for("document.querySelector('main').innerText.includes('1 of 1 group ready')")
        assert page.evaluate("document.querySelectorAll('main details').length") == (1 if scope == "admin" else 0)
        assert ("scope admin sees" in page.text()) == (scope == "read")
        if scope == "admin":
            page.evaluate("document.querySelector('main details summary').click()")
            page.wait_for("document.querySelector('main details').innerText.includes('base')")
    finally:
        page.close()


def test_health_says_that_everything_works(signed_in, lathe):
    show(signed_in, lathe, "/ui/health")
    assert "Everything works." in signed_in.text()
