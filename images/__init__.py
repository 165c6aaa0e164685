"""The container images of the project and the program that builds them without a registry."""
