package node

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
)

// watchBackoff is the longest wait between two attempts to watch the node object. It is short,
// since the controllers mark a node whose reports are missing, and the agent has to see that
// when the server is back.
const watchBackoff = 2 * time.Second

// watch follows the node object until ctx ends. A node may list and watch no other.
func (n *Node) watch(ctx context.Context) {
	listwatch.Run(ctx, listwatch.Resource{
		Name: "node", Client: n.client, Type: &v1.Node{},
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, n.s.name).String(),
		API:           listwatch.Of(n.client.CoreV1().Nodes()),
		Failed: func(err error, first bool) {
			if first {
				n.log.Error(err, "Watching the node object failed; it is repeated")
			}
		},
		MaxBackoff: watchBackoff,
	}, store{n})
}

// store receives the node object from the reflector.
type store struct{ n *Node }

var _ cache.ReflectorStore = store{}

func (s store) Add(obj any) error {
	if node, ok := obj.(*v1.Node); ok && node.Name == s.n.s.name {
		s.n.learn(node)
		notify(s.n.touched)
	}
	return nil
}

func (s store) Update(obj any) error { return s.Add(obj) }

func (s store) Delete(obj any) error {
	if node, ok := obj.(*v1.Node); ok && node.Name == s.n.s.name {
		s.n.lost(node.ResourceVersion)
	}
	return nil
}

func (s store) Replace(list []any, version string) error {
	for _, obj := range list {
		if node, ok := obj.(*v1.Node); ok && node.Name == s.n.s.name {
			return s.Add(node)
		}
	}
	s.n.lost(version)
	return nil
}

func (store) Resync() error { return nil }
