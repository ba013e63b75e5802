package pleg

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var errInjected = errors.New("injected")

// world is a runtime in memory whose calls can be made to fail, to hang and to
// take their time.
type world struct {
	mu   sync.Mutex
	pods map[types.UID]*runtime.Pod

	listErr   error
	listHangs bool
	// listTakes is how long a list call lasts, statusTakes an inspection; late says
	// that what they show is of their end, not of their beginning.
	listTakes, statusTakes time.Duration
	late                   bool
	// broken and hung say whose inspections fail and hang.
	broken, hung map[types.UID]bool

	lists      int
	inspected  map[types.UID]int
	now, most  int // inspections side by side
	afterLists func([]*runtime.Pod)
	// afterReads is called with each status before it is returned.
	afterReads func(context.Context, *runtime.PodStatus)

	events events
}

func newWorld() *world {
	return &world{pods: map[types.UID]*runtime.Pod{}, broken: map[types.UID]bool{}, hung: map[types.UID]bool{}, inspected: map[types.UID]int{}}
}

func refOf(uid types.UID) runtime.PodRef {
	return runtime.PodRef{UID: uid, Namespace: "ns", Name: string(uid)}
}

// do changes the world, and has it tell what has changed.
func (w *world) do(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := maps.Clone(w.pods)
	change()
	for _, uid := range slices.Sorted(maps.Keys(before)) {
		w.tell(uid, diff(before[uid], w.pods[uid]))
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		if before[uid] == nil {
			w.tell(uid, diff(nil, w.pods[uid]))
		}
	}
}

// listCalls and inspections count the calls until now.
func (w *world) listCalls() (n int) {
	w.do(func() { n = w.lists })
	return n
}

func (w *world) inspections(uid types.UID) (n int) {
	w.do(func() { n = w.inspected[uid] })
	return n
}

// set replaces what a pod consists of; without parts it is gone.
func (w *world) set(uid types.UID, parts ...any) {
	w.do(func() {
		if len(parts) == 0 {
			delete(w.pods, uid)
			return
		}
		pod := podOf(parts...)
		pod.PodRef = refOf(uid)
		w.pods[uid] = pod
	})
}

func (w *world) snapshot() []*runtime.Pod {
	pods := make([]*runtime.Pod, 0, len(w.pods))
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		pods = append(pods, clone(w.pods[uid]))
	}
	return pods
}

func clone(p *runtime.Pod) *runtime.Pod {
	c := *p
	c.Containers = slices.Clone(p.Containers)
	c.Sandboxes = slices.Clone(p.Sandboxes)
	return &c
}

// sleep holds the lock except while it sleeps.
func (w *world) sleep(ctx context.Context, d time.Duration) error {
	w.mu.Unlock()
	defer w.mu.Lock()
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

func (w *world) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	if w.listHangs {
		return nil, w.sleep(ctx, time.Hour)
	}
	if w.listErr != nil {
		return nil, w.listErr
	}
	late, pods := w.late, w.snapshot()
	if err := w.sleep(ctx, w.listTakes); err != nil {
		return nil, err
	}
	if late {
		pods = w.snapshot()
	}
	if w.afterLists != nil {
		w.afterLists(pods)
	}
	return pods, nil
}

func (w *world) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inspected[ref.UID]++
	w.now++
	defer func() { w.now-- }()
	w.most = max(w.most, w.now)
	if w.hung[ref.UID] {
		return nil, w.sleep(ctx, time.Hour)
	}
	if w.broken[ref.UID] {
		return nil, errInjected
	}
	late, status := w.late, w.status(ref)
	if err := w.sleep(ctx, w.statusTakes); err != nil {
		return nil, err
	}
	if late {
		status = w.status(ref)
	}
	if w.afterReads != nil {
		w.afterReads(ctx, status)
	}
	return status, nil
}

func (w *world) status(ref runtime.PodRef) *runtime.PodStatus {
	status := &runtime.PodStatus{PodRef: ref}
	if pod := w.pods[ref.UID]; pod != nil {
		for _, s := range pod.Sandboxes {
			status.Sandboxes = append(status.Sandboxes, runtime.SandboxStatus{Sandbox: s})
		}
		for _, c := range pod.Containers {
			status.Containers = append(status.Containers, runtime.ContainerStatus{Container: c})
		}
	}
	return status
}

// view writes what a status or a listed pod says in a form that can be compared.
func view(status *runtime.PodStatus) string {
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
