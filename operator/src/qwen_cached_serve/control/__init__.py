"""Doing, in order: work queue, cache of what was watched, reconciler, and the only modules that know kopf."""
