package local

import (
	"context"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/cluster"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Status implements [control.Node].
func (n Node) Status() control.Status {
	s := control.Status{NodeName: n.NodeName(), Version: n.Version, PID: os.Getpid(), Manifests: n.Manifests,
		Unhealthy: textOf(n.Healthy()), NotReady: textOf(n.RuntimeReady()),
		Pressure: underPressure(n.Components), Sources: []control.SourceStatus{}}
	if rt, ok := runtime.Optional[runtime.FeatureReporter](n.Parts().Runtime); ok {
		s.Runtime = strings.TrimSpace(rt.Features().Name + " " + rt.Features().Version)
	}
	for _, t := range n.Thresholds {
		out := control.Threshold{Signal: string(t.Signal), Value: t.Value.String()}
		if !t.Hard() {
			out.GracePeriod = t.GracePeriod.String()
		}
		s.Thresholds = append(s.Thresholds, out)
	}
	if n.Certificates != nil { // nil in tests
		s.Certificates = n.Certificates()
	}
	pods := map[string]int{}
	for _, pod := range n.Parts().PodManager.Pods() {
		pods[pod.Annotations[podspec.AnnotationConfigSource]]++
	}
	for _, source := range n.Sources() {
		s.Sources = append(s.Sources, control.SourceStatus{Name: source.Name, Delivered: source.Seen,
			Pods: pods[source.Name], Rejected: len(source.Rejected)})
	}
	return s
}

// NodeObject implements [control.Node].
func (n Node) NodeObject(ctx context.Context) (*v1.Node, error) { return n.Object(ctx) }

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// underPressure returns the conditions that a component reports.
func underPressure(components []lifecycle.Component) []v1.NodeConditionType {
	under := []v1.NodeConditionType{}
	for _, condition := range eviction.ConditionTypes() {
		for _, c := range components {
			if p, ok := c.(cluster.Pressure); ok && p.UnderPressure(condition) {
				under = append(under, condition)
				break
			}
		}
	}
	return under
}
