package kubeletkit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// askingHistory is a history that calls the agent.
type askingHistory struct {
	history.Store
	pods func()
}

func (a askingHistory) Record(r runtime.Record) {
	a.pods()
	a.Store.Record(r)
}

// askingWorkers are workers that call the agent.
type askingWorkers struct {
	podworkers.Workers
	pods func()
}

func (a askingWorkers) State(uid types.UID) podworkers.State {
	a.pods()
	return a.Workers.State(uid)
}

// A part may call the agent whenever the agent calls it.
func TestPartsCallTheAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var n *node
		pods := func() {
			if n != nil {
				n.Pods()
			}
		}
		started := startNodeWith(t, dir, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.Override.History = kubeletkit.Wrap(func(h history.Store) history.Store { return askingHistory{Store: h, pods: pods} })
			o.Override.PodWorkers = kubeletkit.Wrap(func(w podworkers.Workers) podworkers.Workers { return askingWorkers{Workers: w, pods: pods} })
		})
		synctest.Wait()
		n = started
		for round := range 3 {
			var desired []*v1.Pod
			for i := range 60 {
				pod := makePod(fmt.Sprint("web-", i))
				pod.UID = types.UID(fmt.Sprintf("%s-%d", pod.Name, round))
				desired = append(desired, pod)
			}
			n.source.Set(desired...)
			for _, pod := range n.after(time.Minute) {
				assert.Equal(t, v1.PodRunning, pod.Status.Phase, pod.UID)
			}
		}
		n.stop(t)
	})
}
