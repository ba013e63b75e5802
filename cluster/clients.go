package cluster

import (
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Budget limits the requests of a client: QPS requests a second on average, Burst at once.
// The zero value stands for the default that is documented where it is used.
type Budget struct {
	QPS   float32
	Burst int
}

// Budgets are the limits of the requests to the API server. Each kind of traffic has its
// own, so that a burst of one never delays another. Watches do not count.
type Budgets struct {
	// Status is for the status of pods, their deletion and mirror pods. Default 50, 100:
	// kubelet's kubeAPIQPS and kubeAPIBurst.
	Status Budget
	// Objects is for secrets, config maps, service account tokens, services and runtime
	// classes. Default 50, 100.
	Objects Budget
	// Node is for the node object and certificates. Default 10, 20.
	Node Budget
	// Lease is for the lease. Default 1, 5.
	Lease Budget
	// Events is for events. Default 50, 100: kubelet's eventRecordQPS and eventBurst.
	Events Budget
}

// clients are the clients of a node, one for each budget.
type clients struct {
	status, objects, node, lease, events kubernetes.Interface
}

func newClients(config *rest.Config, b Budgets) (c clients, err error) {
	var errs []error
	for _, one := range []struct {
		client      *kubernetes.Interface
		name        string
		budget, def Budget
	}{
		{&c.status, "Status", b.Status, Budget{50, 100}},
		{&c.objects, "Objects", b.Objects, Budget{50, 100}},
		{&c.node, "Node", b.Node, Budget{10, 20}},
		{&c.lease, "Lease", b.Lease, Budget{1, 5}},
		{&c.events, "Events", b.Events, Budget{50, 100}},
	} {
		limited := rest.CopyConfig(config)
		limited.QPS, limited.Burst = one.budget.QPS, one.budget.Burst
		if one.budget == (Budget{}) {
			limited.QPS, limited.Burst = one.def.QPS, one.def.Burst
		}
		if *one.client, err = kubernetes.NewForConfig(limited); err != nil {
			errs = append(errs, fmt.Errorf("client of Budgets.%s: %w", one.name, err))
		}
	}
	return c, errors.Join(errs...)
}
