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
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
)

// listing is what the two list calls of CRI return, each newest first.
type listing struct {
	sandboxes  []*criv1.PodSandbox
	containers []*criv1.Container
}

// list makes the two list calls side by side, for one pod if uid is not empty.
func (r *Runtime) list(ctx context.Context, about string, uid types.UID, onlyRunning bool) (listing, error) {
	var (
		sf = &criv1.PodSandboxFilter{}
		cf = &criv1.ContainerFilter{}
		l  listing
	)
	if uid != "" {
		sf.LabelSelector = map[string]string{translate.LabelPodUID: string(uid)}
		cf.LabelSelector = sf.LabelSelector
	}
	if onlyRunning {
		sf.State = &criv1.PodSandboxStateValue{State: criv1.PodSandboxState_SANDBOX_READY}
		cf.State = &criv1.ContainerStateValue{State: criv1.ContainerState_CONTAINER_RUNNING}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		resp, err := call(gctx, r, "ListPodSandbox", about, 0, r.rs.ListPodSandbox, &criv1.ListPodSandboxRequest{Filter: sf})
		l.sandboxes = resp.GetItems()
		return err
	})
	g.Go(func() error {
		resp, err := call(gctx, r, "ListContainers", about, 0, r.rs.ListContainers, &criv1.ListContainersRequest{Filter: cf})
		l.containers = resp.GetContainers()
		return err
	})
	if err := g.Wait(); err != nil {
		return listing{}, err
	}
	sortSandboxes(l.sandboxes)
	sortContainers(l.containers)
	return l, nil
}

// ListPods implements [runtime.Lister] with two calls. What does not carry
// kubelet's labels belongs to no pod and is left out, so that nobody takes it for
// an orphan.
func (r *Runtime) ListPods(ctx context.Context, all bool) ([]*runtime.Pod, error) {
	typ, err := r.typeName(ctx)
	if err != nil {
		return nil, err
	}
	l, err := r.list(ctx, "", "", !all)
	if err != nil {
		return nil, err
	}
	return assemble(typ, l), nil
}

// assemble groups sandboxes and containers by pod, in the order of the listing.
func assemble(typ string, l listing) []*runtime.Pod {
	var pods []*runtime.Pod
	byUID := map[types.UID]*runtime.Pod{}
	podOf := func(labels map[string]string) *runtime.Pod {
		ref, ok := translate.RefFromLabels(labels)
		if !ok {
			return nil
		}
		pod := byUID[ref.UID]
		if pod == nil {
			pod = &runtime.Pod{PodRef: ref}
			byUID[ref.UID] = pod
			pods = append(pods, pod)
		}
		return pod
	}
	for _, s := range l.sandboxes {
		if pod := podOf(s.GetLabels()); pod != nil {
			pod.Sandboxes = append(pod.Sandboxes, sandboxOf(s))
		}
	}
	for _, c := range l.containers {
		if pod := podOf(c.GetLabels()); pod != nil {
			record, _ := translate.ReadRecord(c.GetAnnotations())
			pod.Containers = append(pod.Containers, containerOf(typ, c, record.Hash))
		}
	}
	return pods
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
	return cmp.Or(labels[translate.LabelContainerName], meta.GetName())
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

// unixTime converts CRI's nanoseconds, where 0 means that it did not happen.
func unixTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// sortSandboxes puts the newest first. Attempts of one pod only ever grow, while
// the clock of a machine may be set back; so they come before the times.
func sortSandboxes(list []*criv1.PodSandbox) {
	slices.SortFunc(list, func(a, b *criv1.PodSandbox) int {
		return cmp.Or(
			cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
			cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()),
			cmp.Compare(a.GetId(), b.GetId()),
		)
	})
}

// sortContainers puts the newest first by time of creation, except that the
// instances of one container stand in the order of their attempts: a clock that
// was set back does not make an old instance the newest of its name.
func sortContainers(list []*criv1.Container) {
	slices.SortFunc(list, func(a, b *criv1.Container) int {
		return cmp.Or(
			cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()),
			cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
			cmp.Compare(a.GetId(), b.GetId()),
		)
	})
	type key struct{ uid, name string }
	keyOf := func(c *criv1.Container) key {
		return key{c.GetLabels()[translate.LabelPodUID], containerName(c.GetLabels(), c.GetMetadata())}
	}
	instances := map[key][]*criv1.Container{}
	for _, c := range list {
		instances[keyOf(c)] = append(instances[keyOf(c)], c)
	}
	for _, same := range instances {
		slices.SortStableFunc(same, func(a, b *criv1.Container) int {
			return cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt())
		})
	}
	for i, c := range list {
		k := keyOf(c)
		list[i], instances[k] = instances[k][0], instances[k][1:]
	}
}
