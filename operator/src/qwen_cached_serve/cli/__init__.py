"""`qcs`, also `kubectl qcs`: what needs no operator, and what people ask of one that runs."""
