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
