module qwencache.dev/localkube/prometheus-operator

go 1.26.0

// Never built: its files are read (example/prometheus-operator-crd), so that the charts' monitors meet the real definitions.
require github.com/prometheus-operator/prometheus-operator v0.85.0
