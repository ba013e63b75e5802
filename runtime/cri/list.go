package cri

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// listing is the result of the two list calls of CRI, in no order.
type listing struct {
	sandboxes  []*criv1.PodSandbox
	containers []*criv1.Container
}

// list makes the two list calls in parallel, for one pod if uid is not empty.
func (r *Runtime) list(ctx context.Context, about string, uid types.UID) (listing, error) {
	var (
		sf = &criv1.PodSandboxFilter{}
		cf = &criv1.ContainerFilter{}
		l  listing
	)
	if uid != "" {
		sf.LabelSelector = map[string]string{crimeta.LabelPodUID: string(uid)}
		cf.LabelSelector = sf.LabelSelector
	}
	long := uid == ""
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		l.sandboxes, err = fetch(r, long, func() ([]*criv1.PodSandbox, error) {
			return streamed(gctx, r, "StreamPodSandboxes", r.rs.StreamPodSandboxes,
				&criv1.StreamPodSandboxesRequest{Filter: sf}, (*criv1.StreamPodSandboxesResponse).GetPodSandboxes)
		}, func() ([]*criv1.PodSandbox, error) {
			resp, err := call(gctx, r, "ListPodSandbox", about, 0, r.rs.ListPodSandbox,
				&criv1.ListPodSandboxRequest{Filter: sf})
			return resp.GetItems(), err
		})
		return err
	})
	g.Go(func() (err error) {
		l.containers, err = fetch(r, long, func() ([]*criv1.Container, error) {
			return streamed(gctx, r, "StreamContainers", r.rs.StreamContainers,
				&criv1.StreamContainersRequest{Filter: cf}, (*criv1.StreamContainersResponse).GetContainers)
		}, func() ([]*criv1.Container, error) {
			resp, err := call(gctx, r, "ListContainers", about, 0, r.rs.ListContainers,
				&criv1.ListContainersRequest{Filter: cf})
			return resp.GetContainers(), err
		})
		return err
	})
	if err := g.Wait(); err != nil {
		return listing{}, err
	}
	for _, s := range l.sandboxes {
		if r.isLeft(s.GetId()) {
			s.State = criv1.PodSandboxState_SANDBOX_NOTREADY
		}
	}
	return l, nil
}

// ListPods implements [runtime.Lister] with two calls, which are streamed if the runtime
// supports that. Sandboxes and containers without kubelet's labels belong to no pod and
// are omitted, so that they are not taken for orphans.
func (r *Runtime) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	typ, err := r.typeName(ctx)
	if err != nil {
		return nil, err
	}
	pods, _, err := r.listAll(ctx, typ)
	return pods, err
}

// listAll lists all pods. It also returns the number of the list in the index.
func (r *Runtime) listAll(ctx context.Context, typ string) ([]*runtime.Pod, uint64, error) {
	list := r.index.begin()
	l, err := r.list(ctx, "", "")
	if err != nil {
		return nil, 0, err
	}
	r.stopped.keep(l.sandboxes)
	r.left.keep(l.sandboxes)
	pods := assemble(typ, l)
	r.index.listedAll(pods, list)
	return pods, list, nil
}

// assemble groups sandboxes and containers by pod. It is the whole cost of a relist
// beyond the calls. The number of allocations is proportional to the number of pods, and
// independent of the number of containers.
func assemble(typ string, l listing) []*runtime.Pod {
	var pods []*runtime.Pod
	index := map[types.UID]int{}
	ownerOf := func(labels map[string]string) int {
		ref, ok := crimeta.RefFromLabels(labels)
		if !ok {
			return noPod
		}
		i, known := index[ref.UID]
		if !known {
			i = len(pods)
			index[ref.UID] = i
			pods = append(pods, &runtime.Pod{PodRef: ref})
		}
		return i
	}
	sandboxOwners, containerOwners := make([]int, len(l.sandboxes)), make([]int, len(l.containers))
	for i, s := range l.sandboxes {
		sandboxOwners[i] = ownerOf(s.GetLabels())
	}
	for i, c := range l.containers {
		containerOwners[i] = ownerOf(c.GetLabels())
	}
	sandboxes := distribute(l.sandboxes, sandboxOwners, len(pods))
	containers := distribute(l.containers, containerOwners, len(pods))
	for i, pod := range pods {
		sortSandboxes(sandboxes[i], keyOfSandbox)
		sortContainers(containers[i], keyOfContainer)
		pod.Sandboxes = slices.Grow(pod.Sandboxes, len(sandboxes[i]))
		for _, s := range sandboxes[i] {
			pod.Sandboxes = append(pod.Sandboxes, sandboxOf(s))
		}
		pod.Containers = slices.Grow(pod.Containers, len(containers[i]))
		for _, c := range containers[i] {
			hash, _ := crimeta.ReadHash(c.GetAnnotations())
			pod.Containers = append(pod.Containers, containerOf(typ, c, hash))
		}
	}
	return pods
}

// noPod is the owner of items that belong to no pod.
const noPod = -1

// distribute returns the items of each of n owners. The owner of item i is of[i].
func distribute[T any](items []T, of []int, n int) [][]T {
	counts := make([]int, n)
	for _, owner := range of {
		if owner != noPod {
			counts[owner]++
		}
	}
	shares, room := make([][]T, n), make([]T, len(items))
	for owner, count := range counts {
		shares[owner], room = room[:0:count], room[count:]
	}
	for i, owner := range of {
		if owner != noPod {
			shares[owner] = append(shares[owner], items[i])
		}
	}
	return shares
}

func sandboxOf(s *criv1.PodSandbox) runtime.Sandbox {
	return runtime.Sandbox{
		ID:        s.GetId(),
		Attempt:   s.GetMetadata().GetAttempt(),
		State:     sandboxState(s.GetState()),
		CreatedAt: unixTime(s.GetCreatedAt()),
	}
}

func containerOf(typ string, c *criv1.Container, hash uint64) runtime.Container {
	return runtime.Container{
		ID:        runtime.ContainerID{Type: typ, ID: c.GetId()},
		Name:      containerName(c.GetLabels(), c.GetMetadata()),
		SandboxID: c.GetPodSandboxId(),
		State:     containerState(c.GetState()),
		CreatedAt: unixTime(c.GetCreatedAt()),
		Hash:      hash,
	}
}

func containerName(labels map[string]string, meta *criv1.ContainerMetadata) string {
	return crimeta.ContainerName(labels, meta.GetName())
}

func sandboxState(s criv1.PodSandboxState) runtime.SandboxState {
	if s == criv1.PodSandboxState_SANDBOX_READY {
		return runtime.SandboxReady
	}
	return runtime.SandboxNotReady
}

func containerState(s criv1.ContainerState) runtime.ContainerState {
	switch s {
	case criv1.ContainerState_CONTAINER_CREATED:
		return runtime.ContainerCreated
	case criv1.ContainerState_CONTAINER_RUNNING:
		return runtime.ContainerRunning
	case criv1.ContainerState_CONTAINER_EXITED:
		return runtime.ContainerExited
	default:
		return runtime.ContainerUnknown
	}
}

// unixTime converts a time of CRI in nanoseconds; 0 means no time.
func unixTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// sandboxKey and containerKey have what sandboxes and containers are sorted by.
type (
	sandboxKey struct {
		attempt uint32
		created int64
		id      string
	}
	containerKey struct {
		name    string
		attempt uint32
		created int64
		id      string
	}
)

func keyOfSandbox(s *criv1.PodSandbox) sandboxKey {
	return sandboxKey{attempt: s.GetMetadata().GetAttempt(), created: s.GetCreatedAt(), id: s.GetId()}
}

func keyOfContainer(c *criv1.Container) containerKey {
	return containerKey{
		name: containerName(c.GetLabels(), c.GetMetadata()), attempt: c.GetMetadata().GetAttempt(),
		created: c.GetCreatedAt(), id: c.GetId(),
	}
}

// sortSandboxes sorts the sandboxes of a pod, the newest first. The attempt takes
// precedence over the time: it never decreases, while a clock may be set back.
func sortSandboxes[T any](list []T, key func(T) sandboxKey) {
	slices.SortFunc(list, func(x, y T) int {
		a, b := key(x), key(y)
		return cmp.Or(cmp.Compare(b.attempt, a.attempt), cmp.Compare(b.created, a.created), cmp.Compare(a.id, b.id))
	})
}

// sortContainers sorts the containers of a pod by time of creation, the newest first,
// except that the instances of one container are in the order of their attempts: after a
// clock was set back, an old instance must not become the newest of its name.
func sortContainers[T any](list []T, key func(T) containerKey) {
	byAttempt := func(x, y T) int { return cmp.Compare(key(y).attempt, key(x).attempt) }
	slices.SortFunc(list, func(x, y T) int {
		a, b := key(x), key(y)
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(b.attempt, a.attempt), cmp.Compare(a.id, b.id))
	})
	if slices.IsSortedFunc(list, byAttempt) {
		return // true of most pods, whose containers have not crashed
	}
	// The instances of each name, over their own positions.
	positions := map[string][]int{}
	for i, c := range list {
		name := key(c).name
		positions[name] = append(positions[name], i)
	}
	for _, at := range positions {
		instances := make([]T, len(at))
		for i, position := range at {
			instances[i] = list[position]
		}
		slices.SortStableFunc(instances, byAttempt)
		for i, position := range at {
			list[position] = instances[i]
		}
	}
}
