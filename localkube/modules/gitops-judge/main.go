// gitops-judge answers as GitOps tools do: Argo CD's health of an object by our Lua check, kstatus' status of it, and
// what Flux's apply engine does with a set of objects.
//
//	gitops-judge health --script health.lua < objects    one answer a line: {"argocd": {…}, "kstatus": {…}}
//	gitops-judge apply --kubeconfig FILE < objects        one line per object: {"subject", "action"}
//
// Objects come as a stream of JSON documents (health) or as YAML or JSON documents (apply).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gitops-judge:", err)
		os.Exit(1)
	}
}

func run(arguments []string, in io.Reader, out io.Writer) error {
	if len(arguments) == 0 {
		return errors.New("which command: health or apply")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	answers := json.NewEncoder(out)
	switch arguments[0] {
	case "health":
		path := flags.String("script", "", "Lua health check, as argocd-cm holds it")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		script, err := os.ReadFile(*path)
		if err != nil {
			return err
		}
		return judgeAll(string(script), in, answers)
	case "apply":
		kubeconfig := flags.String("kubeconfig", "", "who applies, and where")
		namespace := flags.String("namespace", "default", "namespace of objects that name none, and of the Kustomization")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		return applyAll(context.Background(), *kubeconfig, *namespace, in, answers)
	}
	return fmt.Errorf("no command %q: health or apply", arguments[0])
}
