"""The `QwenCachedServe` resource: its models, its rules, its CustomResourceDefinition and its validation.

Pure: nothing here reads a file, a clock or a cluster, and nothing here knows how a resource is carried out.
"""
