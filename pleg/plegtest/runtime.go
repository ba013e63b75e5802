package plegtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ErrInjected is the error of inspections of pods in [State].Broken.
var ErrInjected = errors.New("injected")

// Runtime is a container runtime in memory whose pods are set by a test and whose
// calls fail, hang and take time as the test sets. It implements [runtime.Lister],
// [runtime.Inspector] and [runtime.EventSource], and is safe for concurrent use.
type Runtime struct {
	mu       sync.Mutex
	state    State
	onChange func(runtime.PodRef, []pleg.Event)
}

var (
	_ runtime.Lister      = (*Runtime)(nil)
	_ runtime.Inspector   = (*Runtime)(nil)
	_ runtime.EventSource = (*Runtime)(nil)
)

// State is what a [Runtime] holds, how it behaves and what was requested of it. Tests
// read and change it in [Runtime.Do].
type State struct {
	// Pods by their UID. A pod in the map must not be changed: replace it by a changed
	// copy; see [Clone].
	Pods map[types.UID]*runtime.Pod

	// ListErr is returned by list calls. nil: they succeed.
	ListErr error
	// ListHangs has list calls return only when their context ends.
	ListHangs bool
	// Broken are the pods whose inspections fail with [ErrInjected], Hung those whose
	// inspections return only when their context ends.
	Broken, Hung map[types.UID]bool
	// ListTakes is the duration of a list call, InspectTakes that of an inspection.
	ListTakes, InspectTakes time.Duration
	// Late calls return the pods as they are at the end of the call; others as they are
	// at its beginning.
	Late bool

	// Lists counts the list calls, Inspections the inspections by pod.
	Lists       int
	Inspections map[types.UID]int
	// MostInspections is the largest number of inspections that were under way at once.
	MostInspections int
	inspecting      int

	// OnList receives the result of each successful list call before the caller does,
	// OnInspect that of each successful inspection. Both run inside Do. nil: nothing.
	OnList    func([]*runtime.Pod)
	OnInspect func(context.Context, *runtime.PodStatus)

	// Stream is the event stream.
	Stream Stream
}

// NewRuntime returns a runtime without pods that answers at once.
func NewRuntime() *Runtime {
	return &Runtime{state: State{
		Pods: map[types.UID]*runtime.Pod{}, Inspections: map[types.UID]int{},
		Broken: map[types.UID]bool{}, Hung: map[types.UID]bool{},
	}}
}

// Ref returns the reference that [Runtime.Set] gives to the pod with the UID.
func Ref(uid types.UID) runtime.PodRef {
	return runtime.PodRef{UID: uid, Namespace: "ns", Name: string(uid)}
}

// Part is a part of a pod.
type Part func(*runtime.Pod)

// Container is a container of the state. Its name is "n-" and its ID.
func Container(id string, state runtime.ContainerState) Part {
	return func(p *runtime.Pod) {
		p.Containers = append(p.Containers, runtime.Container{ID: runtime.ContainerID{Type: "test", ID: id},
			Name: "n-" + id, State: state})
	}
}

// Sandbox is a sandbox of the state.
func Sandbox(id string, state runtime.SandboxState) Part {
	return func(p *runtime.Pod) { p.Sandboxes = append(p.Sandboxes, runtime.Sandbox{ID: id, State: state}) }
}

// Clone returns a copy of the pod whose lists can be changed.
func Clone(p *runtime.Pod) *runtime.Pod {
	c := *p
	c.Containers = slices.Clone(p.Containers)
	c.Sandboxes = slices.Clone(p.Sandboxes)
	return &c
}

// Set replaces the parts of a pod. Without parts the pod is gone.
func (r *Runtime) Set(uid types.UID, parts ...Part) {
	r.Do(func(s *State) {
		if len(parts) == 0 {
			delete(s.Pods, uid)
			return
		}
		pod := &runtime.Pod{PodRef: Ref(uid)}
		for _, part := range parts {
			part(pod)
		}
		s.Pods[uid] = pod
	})
}

// Do calls f with the state, which nothing else reads or changes meanwhile. The event
// stream then reports the changes of Pods.
func (r *Runtime) Do(f func(s *State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := maps.Clone(r.state.Pods)
	f(&r.state)
	changed := slices.Sorted(maps.Keys(before))
	for _, uid := range slices.Sorted(maps.Keys(r.state.Pods)) {
		if before[uid] == nil {
			changed = append(changed, uid)
		}
	}
	for _, uid := range changed {
		events := Events(before[uid], r.state.Pods[uid])
		if len(events) == 0 {
			continue
		}
		r.report(uid, events)
		if r.onChange != nil {
			r.onChange(Ref(uid), events)
		}
	}
}

// OnChange has f called with the events of each later change of a pod. It is for
// generators whose events are pushed by a test. f must not call the runtime.
func (r *Runtime) OnChange(f func(pod runtime.PodRef, events []pleg.Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onChange = f
}

// Lists returns the number of list calls until now.
func (r *Runtime) Lists() (n int) {
	r.Do(func(s *State) { n = s.Lists })
	return n
}

// Inspections returns the number of inspections of the pod until now.
func (r *Runtime) Inspections(uid types.UID) (n int) {
	r.Do(func(s *State) { n = s.Inspections[uid] })
	return n
}

// ListPods implements [runtime.Lister].
func (r *Runtime) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.state
	s.Lists++
	if s.ListHangs {
		return nil, r.hang(ctx)
	}
	if s.ListErr != nil {
		return nil, s.ListErr
	}
	late, pods := s.Late, s.list()
	if err := r.sleep(ctx, s.ListTakes); err != nil {
		return nil, err
	}
	if late {
		pods = s.list()
	}
	if s.OnList != nil {
		s.OnList(pods)
	}
	return pods, nil
}

// InspectPod implements [runtime.Inspector].
func (r *Runtime) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.state
	s.Inspections[ref.UID]++
	s.inspecting++
	defer func() { s.inspecting-- }()
	s.MostInspections = max(s.MostInspections, s.inspecting)
	if s.Hung[ref.UID] {
		return nil, r.hang(ctx)
	}
	if s.Broken[ref.UID] {
		return nil, ErrInjected
	}
	late, status := s.Late, s.Status(ref)
	if err := r.sleep(ctx, s.InspectTakes); err != nil {
		return nil, err
	}
	if late {
		status = s.Status(ref)
	}
	if s.OnInspect != nil {
		s.OnInspect(ctx, status)
	}
	return status, nil
}

// hang returns when ctx ends. mu is not held meanwhile.
func (r *Runtime) hang(ctx context.Context) error {
	r.mu.Unlock()
	defer r.mu.Lock()
	<-ctx.Done()
	return ctx.Err()
}

// sleep returns after d, or when ctx ends. mu is not held meanwhile.
func (r *Runtime) sleep(ctx context.Context, d time.Duration) error {
	r.mu.Unlock()
	defer r.mu.Lock()
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// list returns copies of the pods in the order of their UIDs.
func (s *State) list() []*runtime.Pod {
	pods := make([]*runtime.Pod, 0, len(s.Pods))
	for _, uid := range slices.Sorted(maps.Keys(s.Pods)) {
		pods = append(pods, Clone(s.Pods[uid]))
	}
	return pods
}

// Status returns what an inspection of the pod shows now.
func (s *State) Status(ref runtime.PodRef) *runtime.PodStatus {
	status := &runtime.PodStatus{PodRef: ref}
	if pod := s.Pods[ref.UID]; pod != nil {
		for _, s := range pod.Sandboxes {
			status.Sandboxes = append(status.Sandboxes, runtime.SandboxStatus{Sandbox: s})
		}
		for _, c := range pod.Containers {
			status.Containers = append(status.Containers, runtime.ContainerStatus{Container: c})
		}
	}
	return status
}

// Format returns the containers and sandboxes of a status with their states, as in
// "a=running s=ready", in the order of their IDs. It returns "" for nil.
func Format(status *runtime.PodStatus) string {
	if status == nil {
		return ""
	}
	var parts []string
	for _, s := range status.Sandboxes {
		parts = append(parts, s.ID+"="+string(s.State))
	}
	for _, c := range status.Containers {
		parts = append(parts, c.ID.ID+"="+string(c.State))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
