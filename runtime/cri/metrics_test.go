package cri_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// measured keeps measurements.
type measured struct {
	mu         sync.Mutex
	calls      []cri.Call
	sandboxes  []cri.SandboxStart
	pods       []cri.PodStart
	containers []cri.ContainerStart
}

func (m *measured) Measure(v runtime.Measurement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch v := v.(type) {
	case cri.Call:
		m.calls = append(m.calls, v)
	case cri.SandboxStart:
		m.sandboxes = append(m.sandboxes, v)
	case cri.PodStart:
		m.pods = append(m.pods, v)
	case cri.ContainerStart:
		m.containers = append(m.containers, v)
	}
}

// operations returns and forgets the operations so far, in the order of their names,
// a failed one with an exclamation mark.
func (m *measured) operations() []string {
	synctest.Wait()
	var names []string
	for _, c := range m.calls {
		name := c.Operation()
		if c.Err != nil {
			name += "!"
		}
		names = append(names, name)
	}
	m.calls = nil
	slices.Sort(names)
	return names
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measured{}
		svc := newService(t)
		svc.AddImage(fake.Image{Name: "app:2"})
		svc.Inject(fake.Fault{Call: "PullImage", Delay: time.Minute})
		svc.Inject(fake.Fault{Call: "RunPodSandbox", Times: 1, Err: errors.New("no CNI")})
		svc.Inject(fake.Fault{Call: "StartContainer", Target: fake.Target{Container: "b"},
			Err: errors.New("no such file")})
		pod := podOf("a", "b")
		pod.Spec.RuntimeClassName = new("kata")
		pod.Spec.Containers[1].Image = "app:2"
		ref := runtime.RefOf(pod)
		s := newSyncer(t, svc.client(cri.Options{Observer: runtime.Observer{Measure: m.Measure}}), pod)

		_, err := s.sync()
		require.Error(t, err)
		synctest.Wait()
		require.Len(t, m.sandboxes, 1)
		assert.ErrorContains(t, m.sandboxes[0].Err, "no CNI")
		m.operations()
		require.Len(t, m.pods, 1)
		assert.ErrorContains(t, m.pods[0].Err, "no CNI")
		assert.False(t, m.pods[0].UserNamespace)
		m.sandboxes, m.containers = nil, nil

		svc.Inject(fake.Fault{Call: "RunPodSandbox", Delay: time.Second})
		_, err = s.sync()
		require.ErrorContains(t, err, "no such file")
		synctest.Wait()
		assert.Equal(t, []cri.SandboxStart{{Pod: ref, RuntimeHandler: "kata", Took: time.Second}}, m.sandboxes)
		require.Len(t, m.pods, 2)
		assert.ErrorContains(t, m.pods[1].Err, "no such file", "of a container")
		assert.Equal(t, []cri.ContainerStart{
			{Pod: ref, Container: "a"}, {Pod: ref, Container: "b", Reason: "RunContainerError"},
		}, m.containers)
		assert.Equal(t, []string{
			"create_container", "create_container", "image_status", "image_status", "image_status",
			"list_containers", "list_podsandbox", "podsandbox_status", "pull_image", "run_podsandbox",
			"start_container", "start_container!",
		}, m.operations())

		_, err = s.rt.ListPods(t.Context())
		require.NoError(t, err)
		assert.Subset(t, []string{"list_containers", "list_containers!", "list_podsandbox", "list_podsandbox!"},
			m.operations(), "the streamed ones do not exist")
		_, err = s.rt.Exec(t.Context(), s.status().Newest("a").ID, []string{"true"}, 0)
		require.NoError(t, err)
		require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Pod: pod}))
		require.NoError(t, s.rt.RemoveContainer(t.Context(), s.status().Newest("a").ID))
		require.NoError(t, s.rt.RemoveSandbox(t.Context(), "s1"))
		require.NoError(t, s.rt.Check(t.Context()))
		for _, operation := range m.operations() {
			assert.NotEmpty(t, operation, "each call has a name")
		}
	})
}

// The start of a pod with a user namespace is reported as such, also if it fails before the sandbox.
func TestMetricsOfUserNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measured{}
		pod := podOf("a")
		pod.Spec.HostUsers = new(false)
		_, err := newSyncer(t, newService(t).client(cri.Options{Observer: runtime.Observer{Measure: m.Measure}}),
			pod).sync()
		require.Error(t, err)
		synctest.Wait()
		require.Len(t, m.pods, 1)
		assert.True(t, m.pods[0].UserNamespace)
		assert.EqualError(t, err, m.pods[0].Err.Error())
	})
}
