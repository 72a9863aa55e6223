"""AdminClient, method by method."""

import pytest
import tinker
from support.sdk_matrix import sdk_method

from .conftest import this_hour, used


@pytest.fixture
def admin(lathe):
    return tinker.AdminClient(base_url=lathe.url, api_key=lathe.api_key)


@sdk_method("AdminClient.get_audit_log")
def test_get_audit_log(answer, admin, rest, saved):
    """lists the changes to the tenant's keys and checkpoints on one day; needs the scope `admin`"""
    rest.publish_checkpoint_from_tinker_path(saved).result()
    with answer(admin, "checkpoints") as log:
        assert saved in [entry.tinker_path for entry in log.entries]


@pytest.fixture
def billed_admin(lathe, billed):
    service, session = billed
    key = lathe.create_key("billed", scopes=["read"])
    return tinker.AdminClient(base_url=lathe.url, api_key=key), session


@sdk_method("AdminClient.get_billing_usage")
def test_get_billing_usage(answer, billed_admin):
    """returns tokens and checkpoints by hour, session and base model; usage is visible together
    with its result; there are no prices"""
    admin, session = billed_admin
    with answer(admin, *this_hour()) as usage:
        assert used(usage.data, session) == {"training": 12, "sampling_prefill": 3,
                                             "sampling_sample": 5, "checkpoint": 1}
        assert usage.cost_data_through is None


@sdk_method("AdminClient.get_current_checkpoint_storage_usage")
def test_get_current_checkpoint_storage_usage(answer, billed_admin):
    """returns the number and size of the stored checkpoints by project; there are no prices"""
    admin, _ = billed_admin
    with answer(admin) as usage:
        assert [(one.project_id, one.checkpoint_count) for one in usage.data] == [("first", 1)]
        assert usage.data[0].estimated_monthly_cost_usd is None
