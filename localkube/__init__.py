"""A real Kubernetes on one machine, from pinned Go modules: control plane, real node, simulated nodes."""
