"""The way to the Kubernetes API: a typed port, its adapter (the only user of `kubernetes`) and the Lease elector."""
