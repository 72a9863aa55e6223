"""How several processes share the tests out (pytest-xdist): a file stays together, because its tests
share a server, and the longest files come first, so that none is left alone at the end."""

from xdist.scheduler.loadscope import LoadScopeScheduling

LONGEST_FIRST = [
    # fault
    "test_chaos.py", "test_a_clients.py", "test_worker_supervision.py", "test_d_host_ranks.py",
    "test_b4_standby.py", "test_d_hosts.py", "test_d_lost_ranks.py", "test_b_engine.py",
    "test_c_postgres.py", "test_b_snapshots.py", "test_rank_supervision.py", "test_b_fairness.py",
    "test_postgres_restarts.py", "test_e_checkpoints.py", "test_d_workers.py", "test_d_ranks.py",
    "test_c_sessions.py",
    # e2e
    "test_backup.py", "test_examples.py", "test_memory.py", "test_groups.py", "test_keys.py",
    "test_external_weights.py", "test_stream_resume.py", "test_sampler_versions.py",
    "test_bad_values.py", "test_retrieve_futures.py", "test_tls.py", "test_launchers.py",
    "test_checkpoints.py", "test_postgres.py",
    # dashboard
    "test_source.py", "test_first_page.py",
    # parity
    "test_family_ranks.py", "test_tokenizer.py", "test_ranks.py", "test_gradients.py",
    "test_logits.py", "test_merged_export.py",
    # cookbook
    "test_rl.py", "test_distillation.py",
    # deploy
    "test_packages.py", "test_traces.py", "test_chart_values.py", "test_helm_lifecycle.py",
]
# Files whose tests share nothing that would be worth keeping together.
SPLIT = ("test_backup.py", "test_chaos.py", "test_postgres_restarts.py", "test_store_commits.py", "test_d_ranks.py",
         "test_examples.py", "test_rl.py", "test_distillation.py")


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


class LongestFirst(LoadScopeScheduling):
    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        return nodeid if file.endswith(SPLIT) else file


def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return LongestFirst(config, log)
