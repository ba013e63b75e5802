package syncloop

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The record of an update names the fields that differ.
func TestChanges(t *testing.T) {
	old := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	old.Spec.Containers = []v1.Container{{Name: "main", Image: "web:1"}, {Name: "log"}}
	old.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	for name, tc := range map[string]struct {
		change func(*v1.Pod)
		want   []string
	}{
		"nothing": {func(*v1.Pod) {}, nil},
		"labels":  {func(p *v1.Pod) { p.Labels["app"] = "db" }, []string{"metadata.labels"}},
		"status":  {func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }, nil},
		"deletion": {func(p *v1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Now()), new(int64(1)) },
			[]string{"metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds"}},
		"image and deadline": {func(p *v1.Pod) { p.Spec.Containers[0].Image, p.Spec.ActiveDeadlineSeconds = "web:2", new(int64(1)) },
			[]string{"spec.activeDeadlineSeconds", "spec.containers{main}.image"}},
		"another container": {func(p *v1.Pod) { p.Spec.Containers[1].Name = "logs" }, []string{"spec.containers{logs}", "spec.containers{log}"}},
		"an init container": {func(p *v1.Pod) { p.Spec.InitContainers = nil }, []string{"spec.initContainers{setup}"}},
	} {
		t.Run(name, func(t *testing.T) {
			updated := old.DeepCopy()
			tc.change(updated)
			assert.Equal(t, tc.want, changes(old, updated))
		})
	}
}
