package cluster

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/cluster/internal/redirects"
)

// Budget limits the requests of a client: QPS requests a second on average, Burst at once.
// A QPS below 0 is no limit. The zero value stands for the default that is documented where it is
// used.
type Budget struct {
	QPS   float32
	Burst int
}

// Budgets are the limits of the requests to the API server. Each kind of traffic has its
// own, so that a burst of one never delays another. Watches do not count.
type Budgets struct {
	// Status is for the status of pods, their deletion and mirror pods. Default 50, 100, that of
	// podstatus.Options: kubelet's kubeAPIQPS and kubeAPIBurst.
	Status Budget
	// Objects is for secrets, config maps, service account tokens, pod certificates, services,
	// runtime classes and the objects of CSI drivers. Default 50, 100.
	Objects Budget
	// Node is for the node object and certificates. Default 10, 20.
	Node Budget
	// Lease is for the lease. Default 1, 5.
	Lease Budget
	// Events is for events. Default 50, 100: kubelet's eventRecordQPS and eventBurst.
	Events Budget
}

// or returns the budget, and def if it is zero.
func (b Budget) or(def Budget) Budget {
	if b == (Budget{}) {
		return def
	}
	return b
}

// clients are the clients of a node, one for each budget. That of pods has no limit: the
// status sink has a limit of its own. All of them share
// the signal of package outage.
type clients struct {
	pods, objects, node, lease, events kubernetes.Interface
}

// newClients returns the clients for a configuration, which is not changed.
func newClients(config *rest.Config, b Budgets) (c clients, err error) {
	config = rest.CopyConfig(config)
	config.RateLimiter = nil
	// clients of events have another default
	config.ContentType = cmp.Or(config.ContentType, runtime.ContentTypeProtobuf)
	if config.ContentType == runtime.ContentTypeProtobuf {
		// some objects have no protobuf
		config.AcceptContentTypes = cmp.Or(config.AcceptContentTypes, runtime.ContentTypeProtobuf+","+
			runtime.ContentTypeJSON)
	}
	var errs []error
	signal := &outage.Signal{}
	for _, one := range []struct {
		client *kubernetes.Interface
		name   string
		budget Budget
	}{
		{&c.pods, "Status", Budget{QPS: -1}},
		{&c.objects, "Objects", b.Objects.or(Budget{50, 100})},
		{&c.node, "Node", b.Node.or(Budget{10, 20})},
		{&c.lease, "Lease", b.Lease.or(Budget{1, 5})},
		{&c.events, "Events", b.Events.or(Budget{50, 100})},
	} {
		limited := rest.CopyConfig(config)
		limited.Wrap(redirects.Refuse)
		limited.Wrap(signal.Transport)
		limited.QPS, limited.Burst = one.budget.QPS, one.budget.Burst
		client, err := kubernetes.NewForConfig(limited)
		if err != nil {
			errs = append(errs, fmt.Errorf("client of Budgets.%s: %w", one.name, err))
			continue
		}
		*one.client = signal.Client(client)
	}
	return c, errors.Join(errs...)
}
