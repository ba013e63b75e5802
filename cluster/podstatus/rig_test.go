package podstatus_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/cluster/podstatus"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

const node = "node"

// at is the beginning of virtual time.
var at = metav1.NewTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))

func apiPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.PodSpec{
			NodeName: node, Containers: []v1.Container{{Name: "main", Image: "image"}},
			TerminationGracePeriodSeconds: ptr.To[int64](30),
		},
	}
}

func staticPod(name string, uid types.UID) *v1.Pod {
	pod := apiPod(name)
	pod.UID = uid
	pod.Annotations = map[string]string{podspec.AnnotationConfigSource: "file",
		podspec.AnnotationConfigHash: string(uid)}
	return pod
}

// running returns a status as the agent generates it.
func running(ready bool) v1.PodStatus {
	state := v1.ConditionFalse
	if ready {
		state = v1.ConditionTrue
	}
	return v1.PodStatus{
		Phase: v1.PodRunning, StartTime: &at, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}},
		Conditions: []v1.PodCondition{
			{Type: v1.PodReady, Status: state, LastTransitionTime: at},
			{Type: v1.ContainersReady, Status: state, LastTransitionTime: at},
			{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: at},
		},
		ContainerStatuses: []v1.ContainerStatus{{Name: "main", Ready: ready,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}}}},
	}
}

func ended(phase v1.PodPhase) v1.PodStatus {
	s := running(false)
	s.Phase = phase
	s.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed",
		StartedAt: at, FinishedAt: at}}
	return s
}

func condition(pod *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// rig is a running source, sink and status manager over an API server in memory.
type rig struct {
	*testing.T
	api       *apitest.Server
	src       *podsource.Source
	sink      *podstatus.Sink
	opts      podstatus.Options
	store     *status.Store
	storeOpts status.Options
	// signal is that of the client.
	signal outage.Signal
	// stop stops source and manager; restart does, and starts new ones.
	stop, restart func()

	mu      sync.Mutex
	ended   map[types.UID]bool
	static  map[string]bool
	nodeUID types.UID
	// errs has the results of the deliveries of each pod.
	errs map[types.UID][]error
}

// recorded is the sink of a rig.
type recorded struct {
	status.Sink
	*rig
}

func (s recorded) Deliver(ctx context.Context, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
	result, err := s.Sink.Deliver(ctx, pod, st)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs[pod.UID] = append(s.errs[pod.UID], err)
	return result, err
}

func (r *rig) end(uid types.UID) {
	r.mu.Lock()
	r.ended[uid] = true
	r.mu.Unlock()
	r.store.PodFinished(runtime.PodRef{UID: uid})
	synctest.Wait()
}

// deliver delivers a status, unless it equals the last one.
func (r *rig) deliver(pod *v1.Pod, s v1.PodStatus) {
	r.Helper()
	before := len(r.results(pod.UID))
	r.store.Set(pod, s)
	if errs := r.results(pod.UID); len(errs) > before {
		require.NoError(r, errs[before])
	}
}

// try returns the error of the next delivery, which is of this status.
func (r *rig) try(pod *v1.Pod, s v1.PodStatus) error {
	r.Helper()
	before := len(r.results(pod.UID))
	r.store.Set(pod, s)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if errs := r.results(pod.UID); len(errs) > before {
			return errs[before]
		}
		require.Less(r, time.Since(begun), time.Minute, "no delivery")
	}
}

// results returns the errors of all deliveries of the pod, when everything is quiet.
func (r *rig) results(uid types.UID) []error {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs[uid])
}

func (r *rig) gone(pod *v1.Pod) {
	r.store.PodEnded(runtime.RefOf(pod))
	synctest.Wait()
}

// writes returns the requests since the last call but lists, when everything is quiet.
func (r *rig) writes() []string {
	synctest.Wait()
	return slices.DeleteFunc(r.api.Requests(), func(s string) bool { return s == "list" })
}

// run runs the test in virtual time.
func run(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		test(r)
	})
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, api: apitest.New(), ended: map[types.UID]bool{}, static: map[string]bool{}, nodeUID: "node-uid",
		errs: map[types.UID][]error{}}
	r.opts = podstatus.Options{
		NodeName: node,
		NodeUID: func() types.UID {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.nodeUID
		},
		Ended: func(uid types.UID) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.ended[uid]
		},
		Orphaned: func(_, name string) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return !r.static[name]
		},
	}
	r.stop = func() {}
	r.restart = func() {
		r.stop()
		ctx, cancel := context.WithCancel(t.Context())
		client := r.signal.Client(r.api.Client())
		var err error
		var sink *podstatus.Sink
		r.src, err = podsource.New(client, node, podsource.Options{Observers: []func(podsource.Change){
			func(c podsource.Change) { sink.PodsChanged(c) },
		}})
		require.NoError(t, err)
		sink, err = podstatus.New(client, r.src, r.opts)
		require.NoError(t, err)
		opts := r.storeOpts
		opts.Sink, opts.MayRun = recorded{sink, r}, func(types.UID) bool { return false }
		store, err := status.New(opts)
		require.NoError(t, err)
		r.sink, r.store = sink, store
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.src.Run(ctx, podconfig.SinkBase{}) })
		wg.Go(func() { _ = store.Run(ctx) })
		r.stop = func() { cancel(); wg.Wait() }
	}
	r.restart()
	synctest.Wait()
	r.api.Requests()
	return r
}
