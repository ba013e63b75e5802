package client

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// brokenOf returns the manifests that cannot be used and that may be of the pod: the error names the
// pod, or the file has its name, or the name is the path itself.
func (c *call) brokenOf(ctx context.Context, name string) []control.Problem {
	ctx, cancel := context.WithTimeout(ctx, completeWithin) // the disk may be slow
	defer cancel()
	all, err := get[[]control.Problem](ctx, c.client, control.ProblemsPath, nil, "manifests that cannot be used")
	all, _ = control.ByUse(all)
	if err != nil || len(all) == 0 { // the agent may be older
		return nil
	}
	known, err := c.client.histories(ctx) // for the name of the node
	if err != nil {
		return nil
	}
	var found []control.Problem
	for _, p := range all {
		if brokenManifest(p, known.NodeName, c.podNamespace(), name) {
			found = append(found, p)
		}
	}
	return found
}

// brokenManifest reports whether a problem may be about the pod.
func brokenManifest(p control.Problem, node, namespace, name string) bool {
	if p.Path == name {
		return true
	}
	if p.Pod != "" {
		of, pod, _ := strings.Cut(p.Pod, "/")
		stub := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: of, Name: pod}, Spec: v1.PodSpec{NodeName: node}}
		return names(stub, namespace, name) != notNamed
	}
	base := filepath.Base(p.Path)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	return base == name || base+"-"+strings.ToLower(node) == name
}

// describeBroken returns the page of a pod of which there is only a manifest that cannot be used.
func describeBroken(k *known, now time.Time, width int) string {
	d := newDescription(now, width)
	d.headline("Not running: its manifest cannot be used: " + k.broken[0].Error)
	d.line(0, "Name", "%s", k.name)
	d.line(0, "Status", "not on the node")
	d.manifests(k.broken)
	return d.page()
}

// historyOfBroken returns entries about manifests that cannot be used, of which there is no history.
func historyOfBroken(broken []control.Problem, now time.Time) (entries []history.Entry) {
	for _, p := range broken {
		namespace, name, _ := strings.Cut(p.Pod, "/")
		at := p.Since
		if at.IsZero() { // an older agent
			at = now
		}
		entries = append(entries, history.Entry{Count: 1, First: at, Last: at, Record: runtime.Record{
			Pod: runtime.PodRef{Namespace: namespace, Name: name}, Stage: runtime.StageDecided,
			Kind:    runtime.KindReject,
			Message: fmt.Sprintf("manifest %s cannot be used: %s", p.Path, p.Error),
		}})
	}
	return entries
}
