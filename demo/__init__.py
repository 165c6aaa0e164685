"""
The main job, shown for real: `make demo` (see `python -m demo --help`).

The demo drives everything from outside, as a platform engineer would: `qcs`, `kubectl`, HTTP. It knows nothing of the
operator's insides but the probe's message writer, so it doubles as the end-to-end test of the engine tier.
"""
