"""Development tools of this repository: bootstrap and the test tiers. Nothing here ships with the operator."""
