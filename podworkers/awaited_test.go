package podworkers_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podworkers"
)

// Termination.Awaited is closed while another pod waits for the end of the one that is
// terminated.
func TestAwaited(t *testing.T) {
	kill := func(pod *v1.Pod) podworkers.Update { return podworkers.Update{Type: podworkers.Kill, Pod: pod} }
	create := func(pod *v1.Pod) podworkers.Update {
		return podworkers.Update{Type: podworkers.Create, Pod: pod}
	}
	a, b, other := staticPod("a", "p"), staticPod("b", "p"), staticPod("other", "q")
	tests := []struct {
		name string
		// before the termination of a, and during it.
		before, during []podworkers.Update
		want           bool
	}{
		{name: "by no pod", before: []podworkers.Update{create(other)}, during: []podworkers.Update{create(staticPod("c", "r"))}},
		{name: "by a pod that comes later", during: []podworkers.Update{create(b)}, want: true},
		{name: "by one that came before", before: []podworkers.Update{create(b)}, want: true},
		{name: "by its next incarnation", during: []podworkers.Update{create(a)}, want: true},
		{name: "in a call that is repeated", during: []podworkers.Update{create(b), {Type: podworkers.Kill, Pod: a, Kill: &podworkers.KillOptions{GracePeriod: new(int64(2))}}}, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
				var awaited <-chan struct{}
				n.terminating = func(ctx context.Context, _ *v1.Pod, term podworkers.Termination) error {
					awaited = term.Awaited
					return after(time.Minute)(ctx)
				}
				w.UpdatePod(create(a))
				synctest.Wait()
				for _, u := range tt.before {
					w.UpdatePod(u)
				}
				w.UpdatePod(kill(a))
				synctest.Wait()
				for _, u := range tt.during {
					w.UpdatePod(u)
					synctest.Wait()
				}
				select {
				case <-awaited:
					assert.True(t, tt.want)
				default:
					assert.False(t, tt.want)
				}
				w.UpdatePod(kill(other))
				time.Sleep(time.Hour)
			})
		})
	}
}

// A call that waits for its turn begins the grace period later. A shorter one that comes
// meanwhile counts when it begins, and one that comes afterwards is measured from then on.
func TestGraceBegins(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		a := staticPod("a", "p")
		shorten := func(grace int64) {
			w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: a, Kill: &podworkers.KillOptions{GracePeriod: &grace}})
		}
		var got []int64
		n.terminating = func(ctx context.Context, _ *v1.Pod, term podworkers.Termination) error {
			if *term.GracePeriod < 25 {
				return nil
			}
			time.Sleep(20 * time.Second) // at a gate
			got = append(got, term.GraceBegins())
			time.Sleep(time.Second)
			got = append(got, term.GraceBegins())
			return after(time.Hour)(ctx)
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: a})
		synctest.Wait()
		n.took()
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: a})
		time.Sleep(10 * time.Second)
		shorten(25) // ends later than 30 s from the call
		time.Sleep(12 * time.Second)
		synctest.Wait()
		assert.Equal(t, []int64{25, 25}, got)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"0s terminating(30) a"}, n.took())
		shorten(14) // at 32 s: ends later than 25 s after the grace period began, at 20 s
		synctest.Wait()
		assert.Empty(t, n.took())
		shorten(12)
		synctest.Wait()
		assert.Equal(t, []string{"32s the grace period was shortened", "32s terminating(12) a", "32s terminated a"}, n.took())
	})
}
