"""How the API server merges a patch, or what a manager applies, into an object."""

# Keys by which elements of a list of maps are matched in a strategic merge, by the list's name. Other lists are replaced.
MERGE_KEYS = {"containers": ("name",), "initContainers": ("name",), "volumes": ("name",), "env": ("name",),
              "imagePullSecrets": ("name",), "volumeMounts": ("mountPath",), "ports": ("containerPort", "port")}


def merged(old, new):
    """A merge patch: maps are merged, null removes, everything else replaces."""
    result = dict(old)
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(old[key] if isinstance(old.get(key), dict) else {}, value)
        else:
            result[key] = value
    return result


def strategically_merged(old, new):
    """A strategic merge patch, which Helm 3 and kubectl send for built-in kinds."""
    if new.get("$patch") == "replace":
        return {key: value for key, value in new.items() if key != "$patch"}
    result = {key: value for key, value in old.items() if key in new.get("$retainKeys", old)}
    for key, value in new.items():
        assert not key.startswith("$deleteFromPrimitiveList"), "no object here has such a list"
        if key.startswith("$"):
            continue  # an order, which does not matter here
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategically_merged(old[key] if isinstance(old.get(key), dict) else {}, value)
        elif isinstance(value, list) and key in MERGE_KEYS and all(isinstance(item, dict) for item in value):
            result[key] = _merged_list(old.get(key, []), value, MERGE_KEYS[key])
        else:
            result[key] = value
    return result


def _merged_list(old, new, keys):
    def name(item):
        return next(item[key] for key in keys if key in item)

    result = {name(item): item for item in old}
    for item in new:
        if item.get("$patch") == "delete":
            result.pop(name(item), None)
        else:
            result[name(item)] = strategically_merged(result.get(name(item), {}), item)
    return list(result.values())


def without_forgotten(current, before, now):
    """What a manager applied before and does not apply now is removed; what others set stays."""
    kept = {}
    for key, value in current.items():
        if key in before and key not in now:
            continue
        if all(isinstance(side.get(key), dict) for side in (before, now)) and isinstance(value, dict):
            value = without_forgotten(value, before[key], now[key])
        kept[key] = value
    return kept
