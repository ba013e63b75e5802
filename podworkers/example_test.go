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

// printer is a Syncer that prints its calls.
type printer struct {
	podworkers.SyncerBase
	synced chan struct{}
}

func (p printer) SyncPod(_ context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	_ *runtime.PodStatus) (podworkers.Result, error) {
	fmt.Println(typ, pod.Name)
	p.synced <- struct{}{}
	return podworkers.Result{}, nil
}

func (printer) SyncTerminatingPod(_ context.Context, pod *v1.Pod, _ *runtime.PodStatus,
	t podworkers.Termination) error {
	fmt.Println("stop", pod.Name, "within", *t.GracePeriod, "s")
	return nil
}

func (printer) SyncTerminatingOrphan(context.Context, *runtime.Pod, *runtime.PodStatus, *int64) error {
	return nil
}

// empty is a runtime without pods.
type empty struct{}

func (empty) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	return &runtime.PodStatus{PodRef: ref}, nil
}

func Example() {
	syncer := printer{synced: make(chan struct{}, 1)}
	workers, err := podworkers.New(syncer, runtime.NewCache(empty{}, runtime.CacheOptions{}), podworkers.Options{})
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
