"""What runs in the serving pod and is imported by the operator too: standard library only (the probe also imports
vllm).
"""
