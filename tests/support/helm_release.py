"""A release that the real helm installs through an API server. Helm keeps its records in a Postgres, because it would
write them to the API server as protobuf, which `support.kube_api` does not read."""

import uuid

from support.helm import CHART, NAMESPACE, RELEASE, helm, kubectl, run


class HelmRelease:
    def __init__(self, api, cluster, major=4):
        """`cluster`: a PostgresCluster with a database of its own for this release. `major`: version of helm."""
        self.api = api
        self._program = helm(major)
        database = f"helm_{uuid.uuid4().hex[:12]}"
        cluster.create_database(database)
        self._environment = {
            **api.environment, "HELM_DRIVER": "sql", "HELM_DRIVER_SQL_CONNECTION_STRING":
            f"postgresql://lathe@/{database}?host={cluster.dir}&sslmode=disable"}

    def helm(self, *arguments, check=True):
        return self._run(self._program, arguments, check)

    def kubectl(self, *arguments, check=True):
        return self._run(kubectl(), arguments, check)

    def _run(self, program, arguments, check):
        with self.api.home.enter():
            return run(program, *arguments, "--namespace", NAMESPACE, check=check, env=self._environment)

    def install(self, case, *values, files=(), check=True, timeout="60s"):
        return self._change("install", case, values, files, check, timeout)

    def upgrade(self, case, *values, files=(), check=True, timeout="60s", chart=CHART):
        return self._change("upgrade", case, values, files, check, timeout, chart)

    def _change(self, verb, case, values, files, check, timeout, chart=CHART):
        return self.helm(verb, RELEASE, chart, "--wait", "--timeout", timeout,
                         *(["--values", CHART / case] if case else []),
                         *(word for file in files for word in ("--values", file)),
                         *(word for value in values for word in ("--set", value)), check=check)

    def history(self):
        """(revision, status) of each."""
        lines = self.helm("history", RELEASE).stdout.splitlines()[1:]
        return [(int(line.split("\t")[0]), line.split("\t")[2].strip()) for line in lines]
