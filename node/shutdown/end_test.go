package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
)

// transcript returns the ends as "name with N s at M s".
func transcript(n *fake.Node, began time.Time) string {
	var out []string
	for _, e := range n.Ends() {
		out = append(out, fmt.Sprintf("%s with %d s at %g s", e.Pod, e.GracePeriod, e.At.Sub(began).Seconds()))
	}
	return strings.Join(out, ", ")
}

func TestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		periods shutdown.Periods
		delays  map[string]time.Duration
		want    string
		took    time.Duration
		left    int
	}{
		"at once": {
			periods: shutdown.Classes(30*time.Second, 10*time.Second),
			want:    "web with 20 s at 0 s, batch with 20 s at 0 s, dns with 10 s at 0 s",
		},
		"a group takes its time": {
			periods: shutdown.Classes(30*time.Second, 10*time.Second),
			delays:  map[string]time.Duration{"web": 7 * time.Second, "dns": 3 * time.Second},
			want:    "web with 20 s at 0 s, batch with 20 s at 0 s, dns with 10 s at 7 s",
			took:    10 * time.Second,
		},
		"pods are late": {
			periods: shutdown.Classes(30*time.Second, 10*time.Second),
			delays:  map[string]time.Duration{"web": time.Hour, "dns": time.Hour},
			want:    "web with 20 s at 0 s, batch with 20 s at 0 s, dns with 10 s at 20 s",
			took:    30 * time.Second,
		},
		"groups without pods take no time": {
			periods: shutdown.ByPriority(seconds(0, 5), seconds(10, 600), seconds(systemCritical, 5)),
			delays:  map[string]time.Duration{"web": 2 * time.Second},
			want:    "web with 5 s at 0 s, batch with 5 s at 0 s, dns with 5 s at 2 s",
			took:    2 * time.Second,
		},
		"0 seconds": {
			periods: shutdown.Classes(20*time.Second, 0),
			want:    "web with 20 s at 0 s, batch with 20 s at 0 s, dns with 0 s at 0 s",
		},
		"no limit": {
			periods: shutdown.Unlimited(),
			delays:  map[string]time.Duration{"web": time.Hour, "dns": 5 * time.Second},
			want:    "web with 30 s at 0 s, batch with 30 s at 0 s, dns with 30 s at 30 s",
			took:    35 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := fake.NewNode(makePod("web", 0), makePod("dns", systemCritical), makePod("batch", -1))
				for _, pod := range n.Active() {
					n.SetStopDelay(pod.UID, c.delays[pod.Name])
				}
				began := time.Now()
				_, err := shutdown.End(t.Context(), n, c.periods)
				require.NoError(t, err)
				assert.Equal(t, c.want, transcript(n, began))
				assert.InDelta(t, c.took.Seconds(), time.Since(began).Seconds(), 0.2)
			})
		})
	}
}

// stuck is a node whose pods do not end.
type stuck struct{ *fake.Node }

func (stuck) State(types.UID) lifecycle.PodState { return lifecycle.PodState{Known: true} }

func TestEndOfPodsThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fake.NewNode(makePod("web", 0), makePod("dns", systemCritical))
		began := time.Now()
		left, err := shutdown.End(t.Context(), stuck{n}, shutdown.Unlimited())
		require.NoError(t, err)
		assert.Len(t, left, 2)
		assert.Equal(t, 2*(30+30)*time.Second, time.Since(began), "their grace periods, and 30 s for volumes")
	})
}

// When the context ends, the pods of later groups are not told.
func TestEndThatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fake.NewNode(makePod("web", 0), makePod("dns", systemCritical))
		n.SetStopDelay("uid-web", 10*time.Second)
		back := errors.New("taken back")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { cancel(back) })
		left, err := shutdown.End(ctx, n, shutdown.Classes(time.Minute, 0))
		require.ErrorIs(t, err, back)
		require.Len(t, left, 1)
		assert.Equal(t, "web", left[0].Name)
		assert.Len(t, n.Ends(), 1)

		left, err = shutdown.End(ctx, n, shutdown.Classes(time.Minute, 0))
		require.ErrorIs(t, err, back)
		assert.Empty(t, left)
		assert.Len(t, n.Ends(), 1)
	})
}

// A pod that appears while others end is told with the next group at the latest.
func TestEndOfPodsThatAppear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fake.NewNode(makePod("web", 0), makePod("dns", systemCritical))
		n.SetStopDelay("uid-web", 10*time.Second)
		time.AfterFunc(5*time.Second, func() { n.AddPods(makePod("late", 0)) })
		began := time.Now()
		_, err := shutdown.End(t.Context(), n, shutdown.Classes(time.Minute, 10*time.Second))
		require.NoError(t, err)
		assert.Equal(t, "web with 50 s at 0 s, dns with 10 s at 10 s, late with 10 s at 10 s", transcript(n, began))
	})
}
