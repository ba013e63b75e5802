package fake_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/prober/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web  = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}}
	main = runtime.ContainerID{Type: "fake", ID: "c1"}
)

func result(kind runtime.ProbeKind, healthy bool) runtime.ProbeResult {
	return runtime.ProbeResult{Pod: runtime.RefOf(web), Container: "main", ContainerID: main,
		Kind: kind, Healthy: healthy}
}

func TestVerdicts(t *testing.T) {
	p := fake.New()
	assert.False(t, p.Started(main))
	assert.False(t, p.Ready(main))
	_, bad := p.Unhealthy(main)
	assert.False(t, bad, "unknown is not unhealthy")

	p.Set(result(runtime.StartupProbe, true))
	p.Set(result(runtime.ReadinessProbe, true))
	p.Set(result(runtime.LivenessProbe, true))
	assert.True(t, p.Started(main))
	assert.True(t, p.Ready(main))
	_, bad = p.Unhealthy(main)
	assert.False(t, bad)
	p.Set(result(runtime.LivenessProbe, false))
	probe, bad := p.Unhealthy(main)
	assert.True(t, bad)
	assert.Equal(t, runtime.LivenessProbe, probe)
}

func TestResultsAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fake.New()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		p.Set(result(runtime.ReadinessProbe, false))
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		p.Set(result(runtime.LivenessProbe, false))
		p.Set(result(runtime.ReadinessProbe, true))
		synctest.Wait()
		assert.Equal(t, result(runtime.ReadinessProbe, true), <-p.Results(), "the latest, once")
		assert.Equal(t, result(runtime.LivenessProbe, false), <-p.Results())
		require.NoError(t, p.UntilTaken(ctx))
		cancel()
		require.NoError(t, <-done)
		require.ErrorIs(t, p.Run(t.Context()), runtime.ErrAlreadyRunning)
	})
}

func TestPods(t *testing.T) {
	p := fake.New()
	p.AddPod(web)
	require.NoError(t, p.UntilProbed(t.Context(), "1"))
	p.Set(result(runtime.ReadinessProbe, true))
	probed, live := p.Probed("1")
	assert.True(t, probed && live)
	p.StopLivenessAndStartup(web)
	probed, live = p.Probed("1")
	assert.True(t, probed && !live)
	p.Notify("1")
	p.Cleanup(func(uid types.UID) bool { return uid == "1" })
	assert.True(t, p.Ready(main))
	p.Cleanup(func(types.UID) bool { return false })
	assert.False(t, p.Ready(main))
	require.NoError(t, p.UntilTaken(t.Context()), "what was not sent is gone, too")
	p.AddPod(web)
	p.RemovePod(web)
	probed, _ = p.Probed("1")
	assert.False(t, probed)
}

func Example() {
	p := fake.New()
	p.Set(result(runtime.LivenessProbe, false))
	probe, unhealthy := p.Unhealthy(main)
	fmt.Println(probe, unhealthy)
	// Output: liveness true
}
