module qwencache.dev/localkube/gitops-definitions

go 1.26.0

// Never built: their CustomResourceDefinitions are read, so that the manifests of examples/ meet the real ones.
require (
	github.com/argoproj/argo-cd/v3 v3.4.13
	github.com/fluxcd/kustomize-controller v1.9.6
	github.com/fluxcd/source-controller v1.9.6
	github.com/kedacore/keda/v2 v2.20.2
)
