"""One page in a browser: what every run of the tests checks. test_pages.py has all pages."""

from support.dashboard import HOSTILE


def test_a_key_leads_to_the_runs_and_the_policy_has_no_complaint(signed_in, lathe, run_id):
    page = signed_in
    assert "1 run, 1 of the newest active" in page.wait_for("document.querySelector('.lead')?.innerText")
    page.wait_for("document.querySelector('.chart canvas')")
    page.evaluate("document.querySelector('a[href=\"/ui/runs\"]').click()")
    page.wait_for("location.pathname === '/ui/runs' && document.querySelector('tbody tr')")
    # The name is text: what it would make, if it were markup, is not there.
    assert page.evaluate("document.querySelector('tbody a').textContent") == HOSTILE
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.evaluate("document.title") == "Runs · Lathe"
    page.evaluate("document.querySelector('tbody a').click()")
    page.wait_for("[...document.querySelectorAll('.metric')].find(({ariaLabel}) => ariaLabel === 'loss:sum')"
                  "?.querySelector('canvas')")
    assert page.complaints() == []


def test_the_policy_is_enforced(signed_in):
    """Else the test above could not fail."""
    assert "require" in signed_in.evaluate(
        "(() => { try { document.createElement('p').innerHTML = '<b>x'; return 'taken'; }"
        " catch (error) { return String(error); } })()")
    assert any("TrustedHTML" in text or "Trusted" in text for text in signed_in.complaints())
    signed_in._complaints.clear()
