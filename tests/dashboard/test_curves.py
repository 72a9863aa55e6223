"""The curves of a run, of runs side by side, and in the list of runs."""

import json

import httpx
import pytest
from support.dashboard import HOSTILE, address_of, answer_instead, series, sign_in, train

pytestmark = pytest.mark.slow

CARD = "document.querySelector('.metric')"
LABELS = "[...document.querySelectorAll('.metric .chart')].map(({ariaLabel}) => ariaLabel)"


@pytest.fixture
def page(browser, lathe):
    """A page of its own, on which the key was typed."""
    opened = browser.open(lathe.url + "/ui/key")
    sign_in(opened, lathe.api_key)
    yield opened
    assert opened.complaints() == []
    opened.close()


@pytest.fixture
def drawn(page, lathe, run_id):
    """Shows the run as if it had the given series."""
    def draw(*of, query="", heads=True):
        answer_instead(page, {"/metrics?": {"run_id": run_id, "series": list(of), "more_names": False}})
        page.go(lathe.url + address_of(run_id) + query)
        page.wait_for("document.querySelector('.metric canvas')")
        return page
    return draw


def rows(page, card=CARD):
    page.evaluate(f"[...{card}.querySelectorAll('button')].find((b) => b.innerText === 'Table').click()")
    page.wait_for(f"{card}.querySelector('tbody tr')")
    return page.evaluate(f"[...{card}.querySelectorAll('tbody tr')].map((row) =>"
                         " [...row.children].slice(0, -1).map(({innerText}) => innerText))")


def card_of(name):
    return f"[...document.querySelectorAll('.metric')].find((card) => card.ariaLabel === {json.dumps(name)})"


def is_drawn(card):
    return f"{card}?.querySelector('canvas')"


def test_the_table_twin_has_what_the_sdk_returned(page, lathe):
    import tinker
    from tinker import types
    client = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key, display_name="curves")
    training = client.create_lora_training_client(base_model=lathe.model_name, rank=4).result()
    datum = types.Datum(model_input=types.ModelInput.from_ints(list(range(1, 16))),
                        loss_fn_inputs={"target_tokens": list(range(2, 17)), "weights": [1.0] * 15})
    losses = []

    def step():
        losses.append(training.forward_backward([datum], "cross_entropy").result().metrics["loss:sum"])
        training.optim_step(types.AdamParams(learning_rate=1e-2)).result()

    for _ in range(4):
        step()
    page.go(lathe.url + address_of(training.model_id))
    card = card_of("loss:sum")
    page.wait_for(is_drawn(card))
    page.evaluate("window.isTheSamePage = true")
    # A step that comes while the page is open is shown by itself.
    step()
    page.wait_for(f"{card}.querySelector('.chart').ariaLabel.includes(' {float(f'{losses[-1]:.3g}'):g} ')")
    shown = rows(page, card)
    assert [float(value) for _, value in shown] == pytest.approx(losses)
    assert losses[-1] < losses[0]
    assert page.evaluate("window.isTheSamePage")


def test_a_reward_that_a_program_adds_becomes_the_main_metric(page, lathe):
    run = train(lathe, steps=1, display_name="rewarded")
    points = [{"name": "reward/mean", "step": step, "value": step / 4} for step in range(4)]
    httpx.post(f"{lathe.url}/api/v1/training_runs/{run}/metrics", json={"points": points},
               headers={"X-API-Key": lathe.api_key}).raise_for_status()
    page.go(lathe.url + address_of(run))
    card = card_of("reward/mean")
    page.wait_for(is_drawn(card))
    assert page.evaluate(f"{card}.querySelector('.chart').ariaLabel") == "reward/mean rose from 0 to 0.75 over steps 0 to 3"
    assert page.evaluate("document.querySelector('.figures dt').innerText") == "reward/mean"
    page.go(lathe.url + "/ui/runs?q=rewarded")
    page.wait_for("document.querySelector('.spark')?.ariaLabel === 'reward/mean, 0 to 0.75'")


def test_a_summary_says_in_words_what_the_curve_does(drawn):
    page = drawn(series("reward/mean", [0.1, 0.5, 0.83]), series("loss", [2.0, 1.0]), series("flat", [1.0, 1.0]))
    page.wait_for("document.querySelectorAll('.metric canvas').length === 3")
    assert page.evaluate(LABELS) == ["reward/mean rose from 0.1 to 0.83 over steps 0 to 2",
                                     "loss fell from 2 to 1 over steps 0 to 1",
                                     "flat stayed at 1 over steps 0 to 1"]


def test_metrics_are_in_groups_and_can_be_filtered(drawn):
    page = drawn(series("optim/norm", [1.0]), series("loss:sum", [1.0]), series("reward/mean", [1.0]))
    groups = page.evaluate("[...document.querySelectorAll('.group h2')].map(({innerText}) => innerText)")
    assert groups[:3] == ["reward", "Training", "optim"]
    page.evaluate("document.querySelector('input[type=search]').focus()")
    page.type("LOSS")
    page.wait_for("document.querySelectorAll('.metric').length === 1")
    assert page.evaluate("location.search") == "?m=LOSS"


def test_hostile_names_of_metrics_are_text(drawn):
    page = drawn(series(HOSTILE, [1.0, 2.0]), series("=HYPERLINK(\"http://x\")", [1.0]), series("x" * 64, [3.0]))
    page.wait_for(is_drawn(card_of(HOSTILE)))
    assert page.evaluate(f"{card_of(HOSTILE)}.querySelector('h3').textContent") == HOSTILE
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.evaluate("document.title").startswith("Run ")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def csv_of(page, card):
    page.evaluate("URL.createObjectURL = (blob) => { window.saved = blob; return 'about:blank#'; }")
    page.evaluate("HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; }")
    page.evaluate(f"[...{card}.querySelectorAll('button')].find((b) => b.innerText === 'CSV').click()")
    return page.evaluate("window.saved.text()"), page.evaluate("window.savedAs")


def test_a_file_of_numbers_holds_no_formula(drawn):
    name = "=HYPERLINK(\"http://x\")"
    page = drawn(series(name, [0.125, None, -1.5]))
    text, saved_as = csv_of(page, CARD)
    assert saved_as == "_HYPERLINK_http_x_.csv"
    lines = text.strip().split("\r\n")
    assert lines[0] == "run_id,run,name,step,time,mean,min,max,count"
    quoted = "\"'" + name.replace('"', '""') + "\""
    assert lines[1].split(quoted)[1] == ",0,2026-01-01T00:00:00.000Z,0.125,0.125,0.125,1"
    assert lines[2].split(quoted)[1] == ",1,2026-01-01T00:00:01.000Z,,,,1"
    assert lines[3].split(quoted)[1].endswith(",-1.5,-1.5,-1.5,1")


def test_buckets_show_least_and_largest(drawn):
    page = drawn(series("reward", [1.0, 2.0, 3.0], spread=0.5, count=10))
    assert rows(page) == [["0", "1", "0.5", "1.5", "10"], ["1", "2", "1.5", "2.5", "10"], ["2", "3", "2.5", "3.5", "10"]]


def readout(page):
    return page.evaluate(f"{CARD}.querySelector('header strong').innerText")


def test_smoothing_does_not_lean_to_zero(drawn):
    page = drawn(series("reward", [1.0, 1.0, 4.0]), query="?smooth=0.5")
    # (0.25 * 1 + 0.5 * 1 + 1 * 4) / 1.75
    assert readout(page) == "2.71"
    page.evaluate("document.querySelector('select[aria-label=Smoothing]').value = '0'")
    page.evaluate("document.querySelector('select[aria-label=Smoothing]').dispatchEvent(new Event('change'))")
    page.wait_for(f"{CARD}.querySelector('header strong').innerText === '4'")
    assert page.evaluate("location.search") == ""


# Pixels of a column of the canvas that are neither empty nor of the grid.
COLOURED = """((share) => {
  const canvas = document.querySelector('.metric canvas');
  const over = document.querySelector('.metric .u-over');
  const x = Math.round(over.offsetLeft + share * over.offsetWidth);
  const column = new OffscreenCanvas(1, over.offsetHeight).getContext('2d');
  column.drawImage(canvas, -x, -over.offsetTop);
  const {data} = column.getImageData(0, 0, 1, over.offsetHeight);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) {
    const spread = Math.max(data[at], data[at + 1], data[at + 2]) - Math.min(data[at], data[at + 1], data[at + 2]);
    if (data[at + 3] > 0 && spread > 60) ++count;
  }
  return count;
})"""


def test_missing_steps_are_a_gap_and_not_a_line(drawn):
    steps = list(range(0, 40)) + list(range(60, 101))
    page = drawn(series("reward", [1.0 + 0.001 * step for step in steps], steps=steps))
    page.wait_for(f"{COLOURED}(0.2) > 0")
    assert page.evaluate(f"{COLOURED}(0.8)") > 0
    assert page.evaluate(f"{COLOURED}(0.5)") == 0


def test_buckets_of_several_sizes_are_one_line(drawn):
    """The server answers the old part of a long curve more coarsely than the new one."""
    counts = [128] * 191 + [16] * 192 + [2] * 176
    steps = [sum(counts[:place + 1]) - 1 for place in range(len(counts))]
    curve = series("reward", [1.0 + place / len(counts) for place in range(len(counts))], steps=steps)
    page = drawn({**curve, "counts": counts}, query="?smooth=0.5")
    page.wait_for(f"{COLOURED}(0.5) > 0")
    assert all(page.evaluate(f"Array.from({{length: 90}}, (_, place) => {COLOURED}(0.05 + place / 100))"))


def test_a_logarithmic_axis_leaves_out_what_has_no_logarithm(drawn):
    page = drawn(series("loss", [100.0, 10.0, -1.0, 0.1]), query="?log=1")
    assert readout(page) == "0.1"
    assert page.evaluate(f"{COLOURED}(0.1)") > 0
    assert page.evaluate(f"{COLOURED}(0.66)") == 0
    # Nothing at all is left of this one, which must not break the page.
    page = drawn(series("loss", [-1.0, -2.0]), query="?log=1")
    assert readout(page) == "–"


def move(page, share, kind="mouseMoved", **options):
    box = page.evaluate(f"(({{x, y, width}}) => [x, y, width])({CARD}.querySelector('.u-over').getBoundingClientRect())")
    page.command("Input.dispatchMouseEvent", type=kind, x=box[0] + share * box[2], y=box[1] + 40, **options)


def test_the_pointer_is_in_all_charts(drawn):
    page = drawn(series("reward", [float(step) for step in range(101)]), series("loss", [2.0 * step for step in range(101)]))
    page.wait_for("document.querySelectorAll('.metric canvas').length === 2")
    move(page, 0.3)
    move(page, 0.505)
    shown = page.wait_for("(() => { const all = [...document.querySelectorAll('.metric header > span')]"
                          ".map(({innerText}) => innerText); return all.every((one) => one.startsWith('step')) && all; })()")
    assert [text.split()[-1] for text in shown] == ["50", "100"], shown


def test_a_drawn_range_asks_for_its_steps_and_is_in_the_address(drawn):
    page = drawn(series("reward", [float(step) for step in range(101)]))
    move(page, 0.2, "mousePressed", button="left", buttons=1, clickCount=1)
    for share in (0.3, 0.4, 0.5, 0.603):
        move(page, share, button="left", buttons=1)
    move(page, 0.603, "mouseReleased", button="left", clickCount=1)
    page.wait_for("location.search === '?from=20&to=60' || location.search === '?from=21&to=60'")
    page.wait_for("window.asked.some((path) => /from_step=2[01]&to_step=60/.test(path))")
    page.evaluate("[...document.querySelectorAll('button')].find((b) => b.innerText === 'All steps').click()")
    page.wait_for("location.search === ''")


def test_charts_share_their_questions_and_hidden_ones_ask_nothing(drawn):
    page = drawn(*[series(f"group{place}/metric", [1.0, 2.0]) for place in range(120)])
    page.wait_for("document.querySelectorAll('.metric canvas').length > 1")
    with_points = page.evaluate("window.asked.filter((path) => !path.endsWith('points=0'))")
    names = [name for path in with_points for name in path.split("names=")[1].split("&")[0].split(",")]
    assert len(with_points) <= 2
    assert 2 <= len(set(names)) < 20, names
    page.evaluate("document.querySelectorAll('.group')[20].scrollIntoView()")
    page.wait_for("window.asked.some((path) => path.includes('group20/'))")


def test_two_runs_side_by_side(page, lathe, run_id):
    other = train(lathe, steps=2, display_name="other run", user_metadata={"colour": "blue"})
    page.go(f"{lathe.url}/ui/compare?runs={run_id},{other},no-such-run")
    card = card_of("loss:sum")
    page.wait_for(is_drawn(card))
    label = page.evaluate(f"{card}.querySelector('.chart').ariaLabel")
    assert label.count("over steps") == 2 and "loss:sum of other run" in label, label
    text = page.evaluate("document.querySelector('main').textContent")
    assert "Not to be seen with this key: no-such-run" in text
    differing = page.evaluate("[...document.querySelectorAll('[aria-label=Settings] tbody th')].map(({innerText}) => innerText)")
    assert "metadata: colour" in differing and "Base model" not in differing
    last = page.evaluate("[...document.querySelectorAll('[aria-label=\"Last values\"] tbody tr')]"
                         ".map((row) => [...row.children].map(({innerText}) => innerText))")
    assert next(row for row in last if row[0] == "loss:sum")[1:] != ["–", "–"]
    page.evaluate("document.querySelector('button[aria-label^=\"Leave out\"]').click()")
    page.wait_for("document.querySelectorAll('.runs li').length === 1")


def test_more_than_eight_runs_are_not_compared(page, lathe):
    page.go(f"{lathe.url}/ui/compare?runs={','.join(f'none{number}' for number in range(9))}")
    page.wait_for("document.querySelector('main').innerText.includes('9 runs are too many')")
    page.wait_for("document.querySelector('main').innerText.includes('none7')")
    assert "none8" not in page.text()


def run_row(number):
    return {"training_run_id": f"many{number}:train:0", "base_model": "tiny", "model_owner": "me", "is_lora": True,
            "lora_rank": 4, "corrupted": False, "last_request_time": "2026-01-01T00:00:00Z", "last_checkpoint": None,
            "last_sampler_checkpoint": None, "user_metadata": None}


def test_only_the_rows_on_the_screen_ask_for_their_metric(page, lathe):
    runs = [run_row(number) for number in range(1000)]
    answer_instead(page, {
        "/metrics?": {"run_id": "", "series": [series("loss:sum", [3.0, 2.0]), series("reward/mean", [0.1, 0.4])],
                      "more_names": False},
        "training_runs?limit": {"training_runs": runs, "cursor": {"offset": 0, "limit": 1000, "total_count": 1000}}})
    page.go(lathe.url + "/ui/runs?rows=1000")
    page.wait_for("document.querySelectorAll('tbody tr').length === 1000 && document.querySelector('.spark')")
    assert page.evaluate("document.querySelector('.spark').ariaLabel") == "reward/mean, 0.1 to 0.4"
    numbers = "window.asked.filter((path) => path.includes('/metrics?')).length"
    page.wait_for(f"document.querySelectorAll('.spark').length === {numbers}")
    assert page.evaluate(numbers) < 50
    assert page.evaluate("window.mostInFlight") <= 5
    page.evaluate("[...document.querySelectorAll('tbody tr')].at(-1).scrollIntoView()")
    page.wait_for("window.asked.some((path) => path.includes('many999:'))")
    assert page.evaluate(numbers) < 100


def test_chosen_rows_are_compared(page, lathe, run_id):
    train(lathe, steps=1, display_name="to choose")
    page.go(lathe.url + "/ui/runs")
    page.wait_for("document.querySelectorAll('tbody input').length >= 2")
    for key in "jxjx":
        page.press(key)
    page.wait_for("document.querySelectorAll('tbody input:checked').length === 2")
    page.wait_for("document.querySelector('a.button')?.innerText === 'Compare 2 runs'")
    page.evaluate("document.querySelector('a.button').click()")
    page.wait_for("location.pathname === '/ui/compare' && document.querySelectorAll('.runs li').length === 2")
