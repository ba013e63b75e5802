package runtime

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestParseContainerID(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want ContainerID
		ok   bool
	}{
		{"containerd://abc", ContainerID{Type: "containerd", ID: "abc"}, true},
		{"a://b://c", ContainerID{Type: "a", ID: "b://c"}, true},
		{"", ContainerID{}, false},
		{"abc", ContainerID{}, false},
		{"://abc", ContainerID{}, false},
		{"containerd://", ContainerID{}, false},
		{"containerd:/abc", ContainerID{}, false},
	} {
		got, err := ParseContainerID(tc.in)
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
	assert.Empty(t, ContainerID{}.String())
}

func FuzzParseContainerID(f *testing.F) {
	f.Add("containerd://abc")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseContainerID(s); err == nil {
			assert.Equal(t, s, id.String())
		}
	})
}

func TestContainerIDSurvivesItsString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ContainerID{Type: rapid.StringMatching(`[a-z-]+`).Draw(t, "type"), ID: rapid.StringMatching(`[0-9a-z]+`).Draw(t, "id")}
		got, err := ParseContainerID(id.String())
		assert.NoError(t, err)
		assert.Equal(t, id, got)
	})
}

func TestPodRef(t *testing.T) {
	ref := RefOf(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-1", Namespace: "ns", Name: "web"}})
	assert.Equal(t, PodRef{UID: "u-1", Namespace: "ns", Name: "web"}, ref)
	assert.Equal(t, "ns/web(u-1)", ref.String())
	assert.Equal(t, "ns/web(u-1)", ref.MarshalLog())
	assert.Equal(t, "web_ns", ref.FullName())
}

func TestWhatIsLeftToStop(t *testing.T) {
	ctr := func(s ContainerState) []Container { return []Container{{State: ContainerExited}, {State: s}} }
	sbx := func(s SandboxState) []Sandbox { return []Sandbox{{State: SandboxNotReady}, {State: s}} }
	for _, tc := range []struct {
		name                string
		pod                 Pod
		running, containers bool
	}{
		{"nothing", Pod{}, false, false},
		{"ready sandbox", Pod{Sandboxes: sbx(SandboxReady)}, true, false},
		{"dead sandbox", Pod{Sandboxes: sbx(SandboxNotReady)}, false, false},
		{"created container", Pod{Containers: ctr(ContainerCreated)}, false, false},
		{"running container", Pod{Containers: ctr(ContainerRunning)}, true, true},
		{"exited container", Pod{Containers: ctr(ContainerExited)}, false, false},
		{"unknown container", Pod{Containers: ctr(ContainerUnknown)}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status := &PodStatus{}
			for _, s := range tc.pod.Sandboxes {
				status.Sandboxes = append(status.Sandboxes, SandboxStatus{Sandbox: s})
			}
			for _, c := range tc.pod.Containers {
				status.Containers = append(status.Containers, ContainerStatus{Container: c})
			}
			assert.Equal(t, tc.running, tc.pod.Running())
			assert.Equal(t, tc.running, status.Running())
			assert.Equal(t, tc.containers, status.ContainersRunning())
		})
	}
}

func TestStatusLookups(t *testing.T) {
	ctr := func(id, name string) ContainerStatus {
		return ContainerStatus{Container: Container{ID: ContainerID{Type: "t", ID: id}, Name: name}}
	}
	s := &PodStatus{
		Sandboxes:  []SandboxStatus{{Sandbox: Sandbox{ID: "new", State: SandboxReady}}, {Sandbox: Sandbox{ID: "old", State: SandboxReady}}},
		Containers: []ContainerStatus{ctr("3", "a"), ctr("2", "b"), ctr("1", "a")},
	}
	assert.Equal(t, "3", s.Newest("a").ID.ID)
	assert.Nil(t, s.Newest("c"))
	assert.Equal(t, "b", s.ByID(ContainerID{Type: "t", ID: "2"}).Name)
	assert.Nil(t, s.ByID(ContainerID{Type: "other", ID: "2"}))
	assert.Equal(t, "new", s.ReadySandbox().ID)
	s.Sandboxes[0].State = SandboxNotReady
	assert.Nil(t, s.ReadySandbox(), "only the newest counts")

	var none *PodStatus
	assert.Nil(t, none.Newest("a"))
	assert.Nil(t, none.ByID(ContainerID{}))
	assert.Nil(t, none.ReadySandbox())
	assert.False(t, none.Running())
	assert.False(t, none.ContainersRunning())
}
