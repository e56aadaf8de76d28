// Command policies enforces NetworkPolicies on the development node: kube-network-policies' own
// controller, with a kubeconfig instead of a pod's credentials. The kernel queues the first packet
// of each connection to it, by a rule of dev/policies/enforcer.py.
package main

import (
	"context"
	"flag"
	"os/signal"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	node := flag.String("node", "", "the node's name")
	queue := flag.Int("queue", 100, "the number of the packets' queue")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *node, *queue); err != nil {
		klog.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig, node string, queue int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	seen := informers.NewSharedInformerFactory(clients, 0)
	controller, err := networkpolicy.NewController(
		clients,
		seen.Networking().V1().NetworkPolicies(),
		seen.Core().V1().Namespaces(),
		seen.Core().V1().Pods(),
		// Without the policies of cluster administrators.
		nil, nil, nil, nil,
		// NRIdisabled would leave it a nil pointer, which it follows at each address of no pod.
		networkpolicy.Config{NodeName: node, QueueID: queue},
	)
	if err != nil {
		return err
	}
	seen.Start(ctx.Done())
	return controller.Run(ctx)
}
