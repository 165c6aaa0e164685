"""Deciding without doing: pure functions from a resource and what was observed to a plan, children and a status.

Nothing here reads a clock, a file of the machine, a template or the Kubernetes API: time is an argument, the shell
(`control`, `kube`, `observe`) does the rest.
"""
