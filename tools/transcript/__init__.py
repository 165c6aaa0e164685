"""docs/transcript.md: the life of an installation on a real API server, as the programs themselves print it.

    python -m tools.transcript

Every command is run by this, and its output is written down as it came. What such a cluster cannot have is played and
said so in the page: nodes and pods (KWOK), and the operator's image, in whose place a process of this checkout runs.
"""
