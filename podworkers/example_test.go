package podworkers_test

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// teller is a PodSyncer that tells what it is asked for.
type teller struct{ synced chan struct{} }

func (t teller) SyncPod(_ context.Context, typ podworkers.UpdateType, pod *v1.Pod, _ *runtime.PodStatus) (podworkers.Result, error) {
	fmt.Println(typ, pod.Name)
	t.synced <- struct{}{}
	return podworkers.Result{}, nil
}

func (teller) SyncTerminatingPod(_ context.Context, pod *v1.Pod, _ *runtime.PodStatus, t podworkers.Termination) error {
	fmt.Println("stop", pod.Name, "within", *t.GracePeriod, "s")
	return nil
}

func (teller) SyncTerminatingOrphan(context.Context, *runtime.Pod, *runtime.PodStatus, *int64) error {
	return nil
}

func (teller) SyncTerminatedPod(context.Context, *v1.Pod, *runtime.PodStatus) error { return nil }

// nothing is a runtime that runs nothing.
type nothing struct{}

func (nothing) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	return &runtime.PodStatus{PodRef: ref}, nil
}

func Example() {
	syncer := teller{synced: make(chan struct{}, 1)}
	workers, err := podworkers.New(syncer, runtime.NewCache(nothing{}, runtime.CacheOptions{}), podworkers.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = workers.Run(ctx) })

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "7"}}
	workers.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
	<-syncer.synced

	grace, stopped := int64(5), make(chan struct{})
	workers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{
		GracePeriod: &grace,
		Done:        func() { close(stopped) },
	}})
	<-stopped
	fmt.Println("stopped:", workers.State("7").Terminated())

	cancel()
	run.Wait()
	// Output:
	// create web
	// stop web within 5 s
	// stopped: true
}
