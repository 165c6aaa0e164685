"""What is known about failures: classes (what a code means and what to do) and rules (how a cause looks in a log).

One module an area; each holds the classes and the rules of it. The texts are those of vLLM 0.20-0.33, LMCache
0.4.7-0.5.6, huggingface_hub, torch and the kubelet, matched by what stayed the same over the releases
(facts/vllm.md §4, facts/lmcache.md §3.3; read again in vLLM 0.26.0, 0.29.0, 0.32.0 and LMCache 0.5.3, 0.5.6).
"""
