package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	v1 "k8s.io/api/core/v1"
)

// Topics is a [podconfig.Source]. Each topic that begins with the prefix has a manifest
// with pods, in YAML or JSON.
type Topics struct {
	Broker *Broker
	Prefix string
	// Problem is called with each manifest that cannot be used.
	Problem func(topic string, err error)
}

// Name implements [podconfig.Source].
func (t *Topics) Name() string { return "topics" }

// Run implements [podconfig.Source].
func (t *Topics) Run(ctx context.Context, sink podconfig.Sink) error {
	pods := map[string][]*v1.Pod{} // by topic
	unsubscribe := t.Broker.Subscribe(func(messages []Message) {
		for _, m := range messages {
			t.take(m, sink.NodeName(), pods)
		}
		// Each delivery is the full list; the mux finds the changes. The first one must have
		// all pods that the broker has kept, because pods that are not in it are ended.
		var all []*v1.Pod
		for _, topic := range slices.Sorted(maps.Keys(pods)) {
			all = append(all, pods[topic]...)
		}
		sink.Set(all)
	})
	defer unsubscribe()
	<-ctx.Done()
	return nil
}

// take brings the pods of a topic up to date. Those of a manifest that cannot be
// used stay as they were.
func (t *Topics) take(m Message, node string, pods map[string][]*v1.Pod) {
	switch {
	case !strings.HasPrefix(m.Topic, t.Prefix):
	case len(m.Payload) == 0:
		delete(pods, m.Topic)
	default:
		loaded, err := manifest.Load(m.Payload, manifest.Options{NodeName: node, Source: manifest.SourceHTTP,
			Origin: m.Topic})
		if err != nil {
			t.Problem(m.Topic, err)
			return
		}
		pods[m.Topic] = loaded
	}
}
