package main

import (
	"context"
	"encoding/json"
	"io"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applied is what Flux's engine did with one object: created, configured, unchanged or skipped.
type applied struct {
	Subject string `json:"subject"`
	Action  string `json:"action"`
}

// applyAll does what Flux's kustomize-controller does with the objects of a Kustomization, under its field manager and
// owner labels; objects that take effect for the whole cluster need a poller and are not for here.
func applyAll(ctx context.Context, kubeconfig, namespace string, in io.Reader, out *json.Encoder) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	connection, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	objects, err := utils.ReadObjects(in)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
	}
	if err := normalize.UnstructuredList(objects); err != nil {
		return err
	}
	owner := ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}
	manager := ssa.NewResourceManager(connection, nil, owner)
	manager.SetOwnerLabels(objects, "models", namespace)
	changes, err := manager.ApplyAll(ctx, objects, ssa.DefaultApplyOptions())
	if err != nil {
		return err
	}
	for _, entry := range changes.Entries {
		if err := out.Encode(applied{entry.Subject, entry.Action.String()}); err != nil {
			return err
		}
	}
	return nil
}
