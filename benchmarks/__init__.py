"""Benchmarks of the operator; not part of the tests, since speed depends on the machine (`make bench`)."""
