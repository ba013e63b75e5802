package runtime_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestParseContainerID(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want runtime.ContainerID
		ok   bool
	}{
		{"containerd://abc", runtime.ContainerID{Type: "containerd", ID: "abc"}, true},
		{"a://b://c", runtime.ContainerID{Type: "a", ID: "b://c"}, true},
		{"", runtime.ContainerID{}, false},
		{"abc", runtime.ContainerID{}, false},
		{"://abc", runtime.ContainerID{}, false},
		{"containerd://", runtime.ContainerID{}, false},
		{"containerd:/abc", runtime.ContainerID{}, false},
	} {
		got, err := runtime.ParseContainerID(tc.in)
		assert.Equal(t, tc.want, got, tc.in)
		if tc.ok {
			assert.NoError(t, err)
			assert.Equal(t, tc.in, got.String())
			assert.False(t, got.IsZero())
		} else {
			assert.ErrorContains(t, err, `container ID "`+tc.in+`"`)
			assert.True(t, got.IsZero())
		}
	}
	assert.Empty(t, runtime.ContainerID{}.String())
}

func FuzzParseContainerID(f *testing.F) {
	f.Add("containerd://abc")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := runtime.ParseContainerID(s); err == nil {
			assert.Equal(t, s, id.String())
		}
	})
}

func TestContainerIDSurvivesItsString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := runtime.ContainerID{Type: rapid.StringMatching(`[a-z-]+`).Draw(t, "type"),
			ID: rapid.StringMatching(`[0-9a-z]+`).Draw(t, "id")}
		got, err := runtime.ParseContainerID(id.String())
		assert.NoError(t, err)
		assert.Equal(t, id, got)
	})
}

func TestPodRef(t *testing.T) {
	ref := runtime.RefOf(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-1", Namespace: "ns", Name: "web"}})
	assert.Equal(t, runtime.PodRef{UID: "u-1", Namespace: "ns", Name: "web"}, ref)
	assert.Equal(t, "ns/web(u-1)", ref.String())
	assert.Equal(t, "ns/web(u-1)", ref.MarshalLog())
	assert.Equal(t, "web_ns", ref.FullName())
}

func TestWhatIsLeftToStop(t *testing.T) {
	ctr := func(s runtime.ContainerState) []runtime.Container {
		return []runtime.Container{{State: runtime.ContainerExited}, {State: s}}
	}
	sbx := func(s runtime.SandboxState) []runtime.Sandbox {
		return []runtime.Sandbox{{State: runtime.SandboxNotReady}, {State: s}}
	}
	for _, tc := range []struct {
		name                string
		pod                 runtime.Pod
		running, containers bool
	}{
		{"nothing", runtime.Pod{}, false, false},
		{"ready sandbox", runtime.Pod{Sandboxes: sbx(runtime.SandboxReady)}, true, false},
		{"dead sandbox", runtime.Pod{Sandboxes: sbx(runtime.SandboxNotReady)}, false, false},
		{"created container", runtime.Pod{Containers: ctr(runtime.ContainerCreated)}, false, false},
		{"running container", runtime.Pod{Containers: ctr(runtime.ContainerRunning)}, true, true},
		{"exited container", runtime.Pod{Containers: ctr(runtime.ContainerExited)}, false, false},
		{"unknown container", runtime.Pod{Containers: ctr(runtime.ContainerUnknown)}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status := &runtime.PodStatus{}
			for _, s := range tc.pod.Sandboxes {
				status.Sandboxes = append(status.Sandboxes, runtime.SandboxStatus{Sandbox: s})
			}
			for _, c := range tc.pod.Containers {
				status.Containers = append(status.Containers, runtime.ContainerStatus{Container: c})
			}
			assert.Equal(t, tc.running, tc.pod.Running())
			assert.Equal(t, tc.running, status.Running())
			assert.Equal(t, tc.containers, status.ContainersRunning())
		})
	}
}

func TestStatusLookups(t *testing.T) {
	ctr := func(id, name string) runtime.ContainerStatus {
		return runtime.ContainerStatus{Container: runtime.Container{ID: runtime.ContainerID{Type: "t", ID: id},
			Name: name}}
	}
	s := &runtime.PodStatus{
		Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: "new", State: runtime.SandboxReady}},
			{Sandbox: runtime.Sandbox{ID: "old", State: runtime.SandboxReady}}},
		Containers: []runtime.ContainerStatus{ctr("3", "a"), ctr("2", "b"), ctr("1", "a")},
	}
	assert.Equal(t, "3", s.Newest("a").ID.ID)
	assert.Nil(t, s.Newest("c"))
	assert.Equal(t, "b", s.ByID(runtime.ContainerID{Type: "t", ID: "2"}).Name)
	assert.Nil(t, s.ByID(runtime.ContainerID{Type: "other", ID: "2"}))
	assert.Equal(t, "new", s.ReadySandbox().ID)
	s.Sandboxes[0].State = runtime.SandboxNotReady
	assert.Nil(t, s.ReadySandbox(), "only the newest counts")

	var none *runtime.PodStatus
	assert.Nil(t, none.Newest("a"))
	assert.Nil(t, none.ByID(runtime.ContainerID{}))
	assert.Nil(t, none.ReadySandbox())
	assert.False(t, none.Running())
	assert.False(t, none.ContainersRunning())
}
