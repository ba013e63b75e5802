package cri

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

func TestAssemble(t *testing.T) {
	labels := func(uid string) map[string]string {
		return map[string]string{crimeta.LabelPodUID: uid, crimeta.LabelPodNamespace: "n", crimeta.LabelPodName: "p" +
			uid, crimeta.LabelContainerName: "c"}
	}
	pods := assemble("fake", listing{
		sandboxes: []*criv1.PodSandbox{
			{Id: "foreign"},
			{Id: "s1", Labels: labels("1"), Metadata: &criv1.PodSandboxMetadata{Attempt: 0}},
			{Id: "s1new", Labels: labels("1"), Metadata: &criv1.PodSandboxMetadata{Attempt: 1}, State: criv1.PodSandboxState_SANDBOX_NOTREADY},
			{Id: "s2", Labels: labels("2")},
		},
		containers: []*criv1.Container{
			{Id: "c3", Labels: labels("3"), Annotations: map[string]string{"io.kubernetes.container.hash": "1f"}},
			{Id: "c1", Labels: labels("1"), PodSandboxId: "s1", State: criv1.ContainerState_CONTAINER_EXITED, CreatedAt: 1},
			{Id: "foreign", Labels: map[string]string{"name": "x"}},
			{Id: "c1new", Labels: labels("1"), PodSandboxId: "s1new", State: criv1.ContainerState_CONTAINER_RUNNING, CreatedAt: 2, Annotations: map[string]string{"io.kubernetes.container.hash": "?"}},
		},
	})
	var got []runtime.Pod
	for _, p := range pods {
		got = append(got, *p)
	}
	container := func(id, sandbox string, state runtime.ContainerState, created int64, hash uint64) runtime.Container {
		return runtime.Container{ID: runtime.ContainerID{Type: "fake", ID: id}, Name: "c", SandboxID: sandbox,
			State: state, CreatedAt: unixTime(created), Hash: hash}
	}
	assert.Equal(t, []runtime.Pod{
		{
			PodRef: runtime.PodRef{UID: "1", Namespace: "n", Name: "p1"},
			Sandboxes: []runtime.Sandbox{{ID: "s1new", Attempt: 1, State: runtime.SandboxNotReady},
				{ID: "s1", State: runtime.SandboxReady}},
			Containers: []runtime.Container{
				container("c1new", "s1new", runtime.ContainerRunning, 2, 0),
				container("c1", "s1", runtime.ContainerExited, 1, 0),
			},
		},
		{PodRef: runtime.PodRef{UID: "2", Namespace: "n", Name: "p2"}, Sandboxes: []runtime.Sandbox{{ID: "s2", State: runtime.SandboxReady}}},
		{PodRef: runtime.PodRef{UID: "3", Namespace: "n", Name: "p3"}, Containers: []runtime.Container{container("c3", "", runtime.ContainerCreated, 0, 0x1f)}},
	}, got)
	assert.Empty(t, assemble("fake", listing{}))
}

func TestOrder(t *testing.T) {
	container := func(name string, attempt uint32, created int64) *criv1.Container {
		return &criv1.Container{Id: name, Metadata: &criv1.ContainerMetadata{Name: name, Attempt: attempt},
			CreatedAt: created}
	}
	type key struct {
		name    string
		attempt uint32
	}
	tests := []struct {
		name string
		in   []*criv1.Container
		want []key
	}{
		{"by time", []*criv1.Container{container("a", 0, 1), container("b", 0, 3), container("a", 1, 2)}, []key{{"b", 0}, {"a", 1}, {"a", 0}}},
		{"same time", []*criv1.Container{container("a", 0, 1), container("a", 1, 1)}, []key{{"a", 1}, {"a", 0}}},
		{"the clock was set back", []*criv1.Container{container("a", 0, 100), container("b", 0, 50), container("a", 1, 10)}, []key{{"a", 1}, {"b", 0}, {"a", 0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sortContainers(tt.in, keyOfContainer)
			var got []key
			for _, c := range tt.in {
				got = append(got, key{c.Metadata.Name, c.Metadata.Attempt})
			}
			assert.Equal(t, tt.want, got)
		})
	}
	sandboxes := []*criv1.PodSandbox{
		{Id: "old", Metadata: &criv1.PodSandboxMetadata{Attempt: 0}, CreatedAt: 100},
		{Id: "new", Metadata: &criv1.PodSandboxMetadata{Attempt: 1}, CreatedAt: 10},
	}
	sortSandboxes(sandboxes, keyOfSandbox)
	assert.Equal(t, "new", sandboxes[0].Id)
}

// TestOrderOfManyInstances has clocks that jump: the instances of each name stand in
// the order of their attempts, on the places that they would have by their times.
func TestOrderOfManyInstances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(rapid.Custom(func(t *rapid.T) *criv1.Container {
			return &criv1.Container{
				Id: rapid.StringMatching(`[a-f]{4}`).Draw(t, "id"), CreatedAt: rapid.Int64Range(1,
					9).Draw(t, "created"),
				Metadata: &criv1.ContainerMetadata{Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
					Attempt: rapid.Uint32Range(0, 9).Draw(t, "attempt")},
			}
		})).Draw(t, "list")
		byTime := slices.Clone(list)
		slices.SortFunc(byTime, func(a, b *criv1.Container) int {
			return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(b.Metadata.Attempt, a.Metadata.Attempt),
				cmp.Compare(a.Id, b.Id))
		})
		instances := map[string][]*criv1.Container{}
		for _, c := range byTime {
			instances[c.Metadata.Name] = append(instances[c.Metadata.Name], c)
		}
		for _, same := range instances {
			slices.SortStableFunc(same,
				func(a, b *criv1.Container) int { return cmp.Compare(b.Metadata.Attempt, a.Metadata.Attempt) })
		}
		sortContainers(list, keyOfContainer)
		for i, c := range byTime {
			name := c.Metadata.Name
			assert.Equal(t, instances[name][0].String(), list[i].String())
			instances[name] = instances[name][1:]
		}
	})
}
