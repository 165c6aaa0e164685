"""`qcs`, also `kubectl qcs`: plan, render, validate, crds, status. Only `status` needs a cluster."""
