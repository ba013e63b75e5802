package gc_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A crash loop leaves no more dead containers behind than the policy keeps, at each crash.
func TestDeadContainersAreRemovedAtEachDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{}
		c, err := gc.New(h, func(types.UID) bool { return false }, gc.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		status := &runtime.PodStatus{PodRef: runtime.PodRef{UID: "u", Name: "web", Namespace: "ns"}}
		add := func(id string, state runtime.ContainerState) {
			ctr := runtime.ContainerStatus{}
			ctr.ID, ctr.Name, ctr.State, ctr.CreatedAt = runtime.ContainerID{Type: "t", ID: id},
				"main", state, time.Now()
			status.Containers = append([]runtime.ContainerStatus{ctr}, status.Containers...)
			time.Sleep(time.Second)
		}
		removed := func() []string {
			t.Helper()
			c.CollectPod(status)
			c.CollectPod(status)
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			out := h.removed
			h.removed = nil
			return out
		}
		add("1", runtime.ContainerExited)
		assert.Empty(t, removed())
		add("2", runtime.ContainerExited)
		assert.Equal(t, []string{"1"}, removed())
		status.Containers = status.Containers[:1]
		add("3", runtime.ContainerRunning)
		assert.Empty(t, removed())
		assert.Zero(t, h.listed(), "without a list of all pods")

		own, err := gc.New(h, func(types.UID) bool { return false },
			gc.Options{Plan: func(gc.Input) gc.Removal { panic("not for one pod") }})
		require.NoError(t, err)
		own.CollectPod(status)
		cancel()
		require.NoError(t, <-done)
	})
}

// As in kubelet, the last instance of a container stays until the next collection: its result is read from it.
func TestTheLastInstanceIsLeftToTheNextCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := &runtime.PodStatus{PodRef: ref("u")}
		pod := &runtime.Pod{PodRef: ref("u")}
		for _, id := range []string{"new", "old"} {
			ctr := runtime.ContainerStatus{}
			ctr.ID, ctr.Name, ctr.State = runtime.ContainerID{Type: "t", ID: id}, "main", runtime.ContainerExited
			status.Containers = append(status.Containers, ctr)
		}
		pod.Containers = []runtime.Container{status.Containers[0].Container}
		h := &holder{pods: []*runtime.Pod{pod}}
		c, err := gc.New(h, func(types.UID) bool { return false },
			gc.Options{Policy: gc.Policy{MaxPerContainer: -1, MaxContainers: -1}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		c.CollectPod(status)
		synctest.Wait()
		h.mu.Lock()
		assert.Equal(t, []string{"old"}, h.removed)
		h.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		h.mu.Lock()
		assert.Equal(t, []string{"old", "new"}, h.removed)
		h.mu.Unlock()
		cancel()
		require.NoError(t, <-done)
	})
}

// stuck is a holder whose removals of one container hang.
type stuck struct {
	*holder
	id string
}

func (s stuck) RemoveContainer(ctx context.Context, id runtime.ContainerID) error {
	if id.ID == s.id {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.holder.RemoveContainer(ctx, id)
}

func TestADeadContainerThatCannotBeRemovedDoesNotDelayThoseOfOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := stuck{&holder{}, "old-0"}
		c, err := gc.New(h, func(types.UID) bool { return false }, gc.Options{})
		require.NoError(t, err)
		var want []string
		for i := range 8 {
			status := &runtime.PodStatus{PodRef: ref(fmt.Sprint("u", i))}
			for _, of := range []string{"new", "old"} {
				id := fmt.Sprint(of, "-", i)
				ctr := runtime.ContainerStatus{}
				ctr.ID, ctr.Name, ctr.State = runtime.ContainerID{Type: "t", ID: id}, "main", runtime.ContainerExited
				status.Containers = append(status.Containers, ctr)
			}
			c.CollectPod(status)
			if i > 0 {
				want = append(want, fmt.Sprint("old-", i))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		h.mu.Lock()
		assert.ElementsMatch(t, want, h.removed)
		h.mu.Unlock()
		cancel()
		require.NoError(t, <-done)
	})
}
