package node

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watch follows the node object until ctx ends. A node may list and watch no other.
func (n *Node) watch(ctx context.Context) {
	nodes := n.client.CoreV1().Nodes()
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, n.s.name).String()
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			only(&o)
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			only(&o)
			return nodes.Watch(ctx, o)
		},
	}
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, n.client), &v1.Node{}, store{n},
		cache.ReflectorOptions{Name: "node", Logger: &n.log}).RunWithContext(ctx)
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
