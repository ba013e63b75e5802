package plegtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A wrapper that embeds the interface has all that the generator has.
func TestSuiteWithAWrapper(t *testing.T) {
	plegtest.Suite(t,
		plegtest.Factory{New: func(_ *testing.T, rt *plegtest.Runtime, cache *runtime.Cache) pleg.Generator {
			return wrapper{pleg.NewEvented(rt, cache, pleg.EventedOptions{})}
		}})
}

type wrapper struct{ pleg.Generator }

func TestEvents(t *testing.T) {
	pod := func(parts ...plegtest.Part) *runtime.Pod {
		p := &runtime.Pod{}
		for _, part := range parts {
			part(p)
		}
		return p
	}
	events := plegtest.Events(
		pod(plegtest.Sandbox("s", runtime.SandboxReady), plegtest.Container("a", runtime.ContainerRunning)),
		pod(plegtest.Sandbox("t", runtime.SandboxReady), plegtest.Container("b", runtime.ContainerCreated)))
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprint(e.Type, " ", e.ContainerID.ID, e.SandboxID))
	}
	assert.Equal(t, []string{
		"SandboxStarted t", "SandboxDied s", "SandboxRemoved s", "ContainerChanged b", "ContainerDied a",
		"ContainerRemoved a",
	}, got)
	assert.Empty(t, plegtest.Events(nil, nil))
}

func ExampleRuntime() {
	rt := plegtest.NewRuntime()
	rt.Set("1", plegtest.Sandbox("s", runtime.SandboxReady), plegtest.Container("c", runtime.ContainerExited))
	rt.Do(func(s *plegtest.State) { s.Broken["2"] = true })

	pods, _ := rt.ListPods(context.Background())
	for _, pod := range pods {
		status, err := rt.InspectPod(context.Background(), pod.PodRef)
		fmt.Println(pod.UID, plegtest.Format(status), err)
	}
	_, err := rt.InspectPod(context.Background(), plegtest.Ref("2"))
	fmt.Println(err)
	// Output:
	// 1 c=exited s=ready <nil>
	// injected
}
