"""How several processes share the tests out (pytest-xdist): a file stays together, because its tests
share a server, and the longest files come first, so that none is left alone at the end."""

from xdist.scheduler.loadscope import LoadScopeScheduling

LONGEST_FIRST = []
# Each of their tests starts what it needs, so that any process may run it.
SPLIT = []


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


class LongestFirst(LoadScopeScheduling):
    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        return nodeid if file.endswith(tuple(SPLIT)) else file


def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return LongestFirst(config, log)
