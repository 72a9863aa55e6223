"""A browser's session without a browser: its cookies, and the headers that a browser adds."""

import httpx


class BrowserSession:
    """A client that keeps cookies, as a browser does, and follows no redirect by itself."""

    def __init__(self, url):
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=30)
        self.csrf = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def sign_in(self, api_key):
        answer = self.http.post("/ui/auth/key", json={"api_key": api_key}, headers=self.own_headers(csrf=None))
        assert answer.status_code == 204, answer.text
        self.csrf = self.me().json()["csrf_token"]
        return answer

    def me(self):
        return self.http.get("/ui/api/v1/me")

    def own_headers(self, csrf="", **changes):
        """Headers of a request that the dashboard itself makes, with `changes`; None leaves one out."""
        headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin", "X-Lathe-CSRF": self.csrf if csrf == "" else csrf}
        headers.update({name.replace("_", "-"): value for name, value in changes.items()})
        return {name: value for name, value in headers.items() if value is not None}

    def change(self, method, path, body=None, **headers):
        options = {} if body is None else {"json": body}
        return self.http.request(method, path, headers=self.own_headers(**headers), **options)

    @property
    def cookies(self):
        return {cookie.name: cookie.value for cookie in self.http.cookies.jar}

    def follow(self, path, until):
        """Follows redirects to the first address that begins with one of `until`, which is not asked. Returns it."""
        location = self.url + path
        for _ in range(12):
            location = str(httpx.URL(location).join(self.http.get(location).headers["Location"]))
            if location.startswith(tuple(until)):
                return location
        raise AssertionError(f"no end of redirects: {location}")

    def sign_in_at_provider(self, next_page="/ui/runs"):
        """Signs in as whom the provider names. Returns the path where the browser ends."""
        callback = self.follow(f"/ui/auth/login?{httpx.QueryParams({'next': next_page})}", [f"{self.url}/ui/auth/callback"])
        return self.call_back(callback)

    def call_back(self, callback):
        """The provider's answer comes. Returns the path where the browser ends."""
        answer = self.http.get(callback)
        assert answer.status_code == 303, (answer.status_code, answer.text)
        if (me := self.me()).status_code == 200:
            self.csrf = me.json()["csrf_token"]
        return answer.headers["Location"]
