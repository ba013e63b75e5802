package unittest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/unittest"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	statusfake "github.com/kubeletkit/kubeletkit/status/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func makePod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "image:1"}}},
	}
}

// node is an agent on a fake runtime, with the breaker in front of it.
type node struct {
	*kubeletkit.Agent
	runtime *fake.Runtime
	source  *podconfigfake.Source
	sink    *statusfake.Sink
}

// onNode runs a test in virtual time: minutes take milliseconds.
func onNode(t *testing.T, test func(t *testing.T, n *node)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := &node{runtime: fake.New(fake.Options{Dir: dir}), source: podconfigfake.NewSource("api"), sink: statusfake.NewSink()}
		breaker := unittest.NewBreaker(n.source, n.sink, 3, 2*time.Minute)
		var err error
		n.Agent, err = kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: dir, Host: n.runtime.Host(),
			Runtime: n.runtime, Sources: []podconfig.Source{breaker}, StatusSink: breaker,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		defer func() {
			cancel()
			require.NoError(t, <-done)
			require.NoError(t, n.runtime.Close())
		}()
		test(t, n)
	})
}

var bad, good = fake.Target{Pod: "bad"}, fake.Target{Pod: "good"}

func TestACrashingPodIsTakenAwayAndComesBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.runtime.Script(bad, fake.Times(4, fake.Exits(time.Second, 1))...) // and then it runs
		n.source.Set(makePod("bad"), makePod("good"))
		_, err := n.runtime.UntilRunning(t.Context(), bad, 1)
		require.NoError(t, err)
		require.NoError(t, n.runtime.Until(t.Context(), func() bool {
			return len(n.runtime.Instances(good)) == 1 && slices.ContainsFunc(n.runtime.Instances(bad), func(i fake.Instance) bool { return i.Attempt == 3 })
		}))
		began := time.Now()
		time.Sleep(time.Minute)
		require.Empty(t, n.runtime.Instances(bad), "it was taken away, and nothing is left of it")
		assert.Len(t, n.runtime.Running(good), 1, "the other is not touched")

		_, err = n.runtime.UntilRunning(t.Context(), bad, 1)
		require.NoError(t, err)
		assert.InDelta(t, 2*time.Minute, time.Since(began), float64(5*time.Second))
		time.Sleep(time.Minute)
		assert.Equal(t, "default/bad/main#0 running", first(n.runtime.Running(bad)))
		assert.Equal(t, "default/good/main#0 running", first(n.runtime.Running(good)))
	})
}

func first(list []fake.Instance) string {
	if len(list) == 0 {
		return "none"
	}
	return list[0].String()
}

func TestFaults(t *testing.T) {
	for name, strike := range map[string]func(n *node){
		"the runtime cannot stop it at first": func(n *node) {
			n.runtime.Inject(fake.Fault{Call: "StopPodSandbox", Target: bad, Times: 3, Err: runtime.ErrUnavailable})
		},
		"the runtime hangs for a minute": func(n *node) {
			remove := n.runtime.Inject(fake.Fault{Call: "StopPodSandbox", Target: bad, Hang: true})
			time.AfterFunc(time.Minute, remove)
		},
		"the answer to a start is lost": func(n *node) {
			n.runtime.Inject(fake.Fault{Call: "StartContainer", Target: bad, Late: true, Times: 1, Err: runtime.ErrUnavailable})
		},
		"the runtime is restarted": func(n *node) {
			time.AfterFunc(30*time.Second, func() { n.runtime.Restart(fake.Keep) })
		},
		"statuses are not taken at first": func(n *node) { n.sink.Fail(5, errors.New("conflict")) },
		"the source fails":                func(n *node) { time.AfterFunc(time.Minute, func() { n.source.Fail(errors.New("connection lost")) }) },
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.runtime.Script(bad, fake.Exits(time.Second, 1))
				strike(n)
				n.source.Set(makePod("bad"), makePod("good"))
				time.Sleep(90 * time.Second)
				synctest.Wait()
				assert.Empty(t, n.runtime.Running(bad))
				assert.Len(t, n.runtime.Running(good), 1)
				_, err := n.sink.UntilPhase(t.Context(), "uid-good", v1.PodRunning)
				require.NoError(t, err)
				assert.Len(t, n.Pods(), 1, "only the good one is wanted")
				assert.Zero(t, n.sink.Overlaps())
			})
		})
	}
}
