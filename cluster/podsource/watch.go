package podsource

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
)

// maxBackoff is the longest wait between attempts to list and watch, without up to half of
// it. So a node has the pods again less than 5 s after its server is back, also if only reads
// have failed: when all has failed, the lease tells that it is back.
const maxBackoff = 2500 * time.Millisecond

// watch keeps the store up to date until ctx ends.
func (s *Source) watch(ctx context.Context, to *store) {
	listwatch.Run(ctx, listwatch.Resource{
		Name: "pods of node " + s.node, Client: s.client, Type: &v1.Pod{},
		API:           listwatch.Of(s.client.CoreV1().Pods(metav1.NamespaceAll)),
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", s.node).String(),
		Failed: func(err error, first bool) {
			if first {
				s.opts.Logger.Error(err, "Pods cannot be read from the API server; it is tried again", "node", s.node)
			} else {
				s.opts.Logger.V(2).Info("Pods can still not be read from the API server", "node", s.node, "err", err)
			}
		},
		MaxBackoff: maxBackoff, Probe: true,
	}, to)
}
