"""Fields that the API server, and the webhooks of JobSet, never let change."""

# Only these fields of a spec may change, by kind.
MUTABLE = {
    "StatefulSet": {"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
                    "persistentVolumeClaimRetentionPolicy", "minReadySeconds"},
    "Job": {"parallelism", "completions", "suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished",
            "backoffLimit"},
    # A template may change while the set is suspended; nothing here does that.
    "JobSet": {"suspend", "ttlSecondsAfterFinished"},
    "PersistentVolumeClaim": {"resources", "volumeAttributesClassName"},
}
# These fields of a spec may not change, by kind.
IMMUTABLE = {
    "Deployment": {"selector"},
    "Service": {"clusterIP"},
}
# These fields of the object itself may not change.
IMMUTABLE_OUTSIDE = {
    "RoleBinding": {"roleRef"},
    "Secret": {"type"},
}


def changed_forever(kind, old, new):
    """Paths of fields that the write changes and that never change."""
    before, after = old.get("spec", {}), new.get("spec", {})
    if kind in MUTABLE:
        names = (set(before) | set(after)) - MUTABLE[kind]
    else:
        names = IMMUTABLE.get(kind, set())
    inside = [f"spec.{name}" for name in names if before.get(name) != after.get(name)]
    return sorted(inside + [name for name in IMMUTABLE_OUTSIDE.get(kind, ()) if old.get(name) != new.get(name)])
