"""The chart with ci/sqlite.yaml: one pod that runs `lathe up` with a database of its own."""

import re

import pytest
from support.deploy_packages import slow_deploy
from support.kube_cluster import why_not
from support.kube_service import served_chart
from support.lathe_server import tiny_model

pytestmark = [slow_deploy, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    # The database is helm's.
    with served_chart(tmp_path_factory.mktemp("sqlite"), "ci/sqlite.yaml", f"config.up.tokenizer={tiny_model()}",
                      engine="lathe-up", num_hosts=3) as running:
        yield running


def test_the_stock_sdk_trains(service):
    losses = [float(number) for number in re.findall(r"Loss: (\S+)", service.run_example("pig_latin.py"))]
    assert len(losses) == 6 and losses == sorted(losses, reverse=True)


def test_another_pod_goes_on_with_the_database_of_the_one_before(service):
    before = service.status()
    service.cluster.delete_pod("lathe-up-0", 0)
    service.cluster.wait(service.is_ready, "the group in the pod's successor")
    # The key is of the pod before.
    service.run_example("pig_latin.py")
    assert [group["group"] for group in service.status()["groups"]] == [g["group"] for g in before["groups"]]
