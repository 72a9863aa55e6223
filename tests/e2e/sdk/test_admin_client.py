"""AdminClient, method by method."""

import pytest
import tinker
from support.sdk_matrix import sdk_method


@pytest.fixture
def admin(lathe):
    return tinker.AdminClient(base_url=lathe.url, api_key=lathe.api_key)


@sdk_method("AdminClient.get_audit_log")
def test_get_audit_log(answer, admin, rest, saved):
    """what was done to the tenant's keys and checkpoints on a day; needs scope `admin`"""
    rest.publish_checkpoint_from_tinker_path(saved).result()
    with answer(admin, "checkpoints") as log:
        assert saved in [entry.tinker_path for entry in log.entries]
