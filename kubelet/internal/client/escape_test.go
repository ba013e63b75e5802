package client

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Containers decide the messages of their termination, and manifests the annotations.
func TestDescribeDoesNotActOnTheTerminal(t *testing.T) {
	const attack = "\x1b]52;c;eA==\a\x1b[2J\nStatus:  Running"
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "default", Annotations: map[string]string{"a": attack, "b": attack},
		Labels: map[string]string{"l": attack},
	}}
	pod.Spec.Containers = []v1.Container{{Name: "c", Image: attack, Args: []string{attack}}}
	pod.Status = v1.PodStatus{
		Phase: v1.PodFailed, Reason: attack, Message: attack,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Message: attack}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "c",
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: attack, Message: attack}}}},
	}
	text := describe(&known{pod: pod, events: []runtime.Event{{Type: attack, Reason: attack, Message: attack,
		FieldPath: "spec.containers{" + attack + "}"}}, past: []history.Entry{{Record: runtime.Record{
		Stage: attack, Kind: attack, Source: attack, Container: attack, Reason: attack, Message: attack,
		Error: attack}}}}, time.Now(), 0)
	assert.Contains(t, text, `\x1b]52`)
	assert.NotContains(t, text, "\x1b")
	assert.Zero(t, strings.Count(text, "\nStatus:  Running"))
}
