"""Doing, in order: the work queue, the cache of what was watched, the reconciler, and the only module that knows kopf."""
