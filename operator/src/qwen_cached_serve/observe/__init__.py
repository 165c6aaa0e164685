"""Seeing: pods turned into core types, and the operator's own metrics, logs and health endpoints."""
