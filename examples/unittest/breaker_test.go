package unittest_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/agenttest"
	"github.com/kubeletkit/kubeletkit/examples/unittest"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func makePod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "image:1"}}},
	}
}

// onNode runs a test in virtual time, on an agent with the breaker in front of it.
func onNode(t *testing.T, test func(t *testing.T, n *agenttest.Node)) {
	agenttest.Run(t, agenttest.Options{Configure: func(n *agenttest.Node, opts *kubeletkit.Options) {
		breaker := unittest.NewBreaker(n.Source, n.Sink, 3, 2*time.Minute)
		opts.Sources, opts.StatusSink = []podconfig.Source{breaker}, breaker
	}}, test)
}

var bad, good = fake.Target{Pod: "bad"}, fake.Target{Pod: "good"}

func TestACrashingPodIsTakenAwayAndComesBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *agenttest.Node) {
		n.Runtime.Script(bad, fake.Times(4, fake.Exits(time.Second, 1))...) // and then it runs
		n.Source.Set(makePod("bad"), makePod("good"))
		_, err := n.Runtime.UntilRunning(t.Context(), bad, 1)
		require.NoError(t, err)
		require.NoError(t, n.Runtime.Until(t.Context(), func() bool {
			return len(n.Runtime.Instances(good)) == 1 && slices.ContainsFunc(n.Runtime.Instances(bad),
				func(i fake.Instance) bool { return i.Attempt == 3 })
		}))
		began := time.Now()
		time.Sleep(time.Minute)
		require.Empty(t, n.Runtime.Instances(bad), "it was taken away, and nothing is left of it")
		assert.Len(t, n.Runtime.Running(good), 1, "the other is not touched")

		_, err = n.Runtime.UntilRunning(t.Context(), bad, 1)
		require.NoError(t, err)
		assert.InDelta(t, 2*time.Minute, time.Since(began), float64(5*time.Second))
		time.Sleep(time.Minute)
		assert.Equal(t, "default/bad/main#0 running", first(n.Runtime.Running(bad)))
		assert.Equal(t, "default/good/main#0 running", first(n.Runtime.Running(good)))
	})
}

func first(list []fake.Instance) string {
	if len(list) == 0 {
		return "none"
	}
	return list[0].String()
}

func TestFaults(t *testing.T) {
	for name, strike := range map[string]func(n *agenttest.Node){
		"the runtime cannot stop it at first": func(n *agenttest.Node) {
			n.Runtime.Inject(fake.Fault{Call: "StopPodSandbox", Target: bad, Times: 3, Err: runtime.ErrUnavailable})
		},
		"the runtime hangs for a minute": func(n *agenttest.Node) {
			remove := n.Runtime.Inject(fake.Fault{Call: "StopPodSandbox", Target: bad, Hang: true})
			time.AfterFunc(time.Minute, remove)
		},
		"the answer to a start is lost": func(n *agenttest.Node) {
			n.Runtime.Inject(fake.Fault{Call: "StartContainer", Target: bad, Late: true, Times: 1,
				Err: runtime.ErrUnavailable})
		},
		"the runtime is restarted": func(n *agenttest.Node) {
			time.AfterFunc(30*time.Second, func() { n.Runtime.Restart(fake.Keep) })
		},
		"statuses are not taken at first": func(n *agenttest.Node) { n.Sink.Fail(5, errors.New("conflict")) },
		"the source fails": func(n *agenttest.Node) {
			time.AfterFunc(time.Minute, func() { n.Source.Fail(errors.New("connection lost")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *agenttest.Node) {
				n.Runtime.Script(bad, fake.Exits(time.Second, 1))
				strike(n)
				n.Source.Set(makePod("bad"), makePod("good"))
				n.Sleep(90 * time.Second)
				assert.Empty(t, n.Runtime.Running(bad))
				assert.Len(t, n.Runtime.Running(good), 1)
				_, err := n.Sink.UntilPhase(t.Context(), "uid-good", v1.PodRunning)
				require.NoError(t, err)
				assert.Len(t, n.Pods(), 1, "only the good one is wanted")
				assert.Zero(t, n.Sink.Overlaps())
			})
		})
	}
}
