//go:build tools

// Package tools keeps the commands of the development cluster in go.mod: one
// module, so that all of them share one set of client libraries and the Go
// build cache compiles those once.
package tools

import (
	_ "github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "helm.sh/helm/v3/cmd/helm"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
