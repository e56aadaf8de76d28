// judge reads objects and Lua scripts as JSON and prints what GitOps tools make of each object:
// kstatus of Kubernetes and of Flux, and Argo CD's health and actions.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	flux "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type request struct {
	Health    string
	Discovery string
	Actions   map[string]string
	Objects   map[string]*unstructured.Unstructured
}

type verdict struct {
	Kstatus string         `json:"kstatus"`
	Message string         `json:"message"`
	Flux    string         `json:"flux"`
	Health  any            `json:"health"`
	Actions map[string]any `json:"actions"`
}

func main() {
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fail(err)
	}
	found := map[string]verdict{}
	for name, fleet := range asked.Objects {
		one, err := judge(asked, fleet)
		if err != nil {
			fail(fmt.Errorf("%s: %w", name, err))
		}
		found[name] = one
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func judge(asked request, fleet *unstructured.Unstructured) (found verdict, err error) {
	plain, err := kstatus.Compute(fleet)
	if err != nil {
		return found, err
	}
	ofFlux, err := flux.Compute(fleet)
	if err != nil {
		return found, err
	}
	found = verdict{string(plain.Status), plain.Message, string(ofFlux.Status), nil, map[string]any{}}
	if found.Health, err = run(asked.Health, fleet.Object); err != nil {
		return found, err
	}
	offered, err := run(asked.Discovery, fleet.Object)
	if err != nil {
		return found, err
	}
	for name, about := range offered.(map[string]any) {
		if about.(map[string]any)["disabled"] == true {
			continue
		}
		if found.Actions[name], err = run(asked.Actions[name], fleet.Object); err != nil {
			return found, err
		}
	}
	return found, nil
}
