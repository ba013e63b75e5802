package runtimetest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

type execFunc func(
	ctx context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration,
) (runtime.ExecResult, error)

// defective is a runtime with one defect. A function that is nil changes nothing.
type defective struct {
	*fake.Runtime
	// memory is what a restart keeps.
	memory        fake.Memory
	list          func(pods []*runtime.Pod) []*runtime.Pod
	inspect       func(s *runtime.PodStatus)
	sync          func(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error)
	kill          func(ctx context.Context, req runtime.PodKill) error
	exec          execFunc
	remove        func(ctx context.Context, id runtime.ContainerID) error
	removeSandbox func(ctx context.Context, id string) error
	watch         func(ctx context.Context, established func()) error
	check         func(ctx context.Context) error
}

func (d *defective) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	pods, err := d.Runtime.ListPods(ctx)
	if d.list != nil {
		pods = d.list(pods)
	}
	return pods, err
}

func (d *defective) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	s, err := d.Runtime.InspectPod(ctx, ref)
	if err == nil && d.inspect != nil {
		d.inspect(s)
	}
	return s, err
}

func (d *defective) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	if d.sync != nil {
		return d.sync(ctx, req)
	}
	return d.Runtime.SyncPod(ctx, req)
}

func (d *defective) KillPod(ctx context.Context, req runtime.PodKill) error {
	if d.kill != nil {
		return d.kill(ctx, req)
	}
	return d.Runtime.KillPod(ctx, req)
}

func (d *defective) Exec(
	ctx context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration,
) (runtime.ExecResult, error) {
	if d.exec != nil {
		return d.exec(ctx, id, cmd, timeout)
	}
	return d.Runtime.Exec(ctx, id, cmd, timeout)
}

func (d *defective) RemoveContainer(ctx context.Context, id runtime.ContainerID) error {
	if d.remove != nil {
		return d.remove(ctx, id)
	}
	return d.Runtime.RemoveContainer(ctx, id)
}

func (d *defective) RemoveSandbox(ctx context.Context, id string) error {
	if d.removeSandbox != nil {
		return d.removeSandbox(ctx, id)
	}
	return d.Runtime.RemoveSandbox(ctx, id)
}

func (d *defective) WatchEvents(ctx context.Context, established func(), hint func(runtime.Hint)) error {
	if d.watch != nil {
		return d.watch(ctx, established)
	}
	return d.Runtime.WatchEvents(ctx, established, hint)
}

func (d *defective) Check(ctx context.Context) error {
	if d.check != nil {
		return d.check(ctx)
	}
	return d.Runtime.Check(ctx)
}

// defect is found by the test of that name.
type defect struct {
	found string
	apply func(d *defective)
}

// requests is a defect in what a sync is given.
func requests(found string, change func(req *runtime.PodSync)) defect {
	return defect{found, func(d *defective) {
		d.sync = func(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
			req.Pod = req.Pod.DeepCopy()
			change(&req)
			return d.Runtime.SyncPod(ctx, req)
		}
	}}
}

// containers is a defect in what a sync knows of each container.
func containers(found string, change func(c *v1.Container)) defect {
	return requests(found, func(req *runtime.PodSync) {
		for i := range req.Pod.Spec.Containers {
			change(&req.Pod.Spec.Containers[i])
		}
	})
}

// results is a defect in what a sync returns.
func results(found string, change func(res *runtime.SyncResult)) defect {
	return defect{found, func(d *defective) {
		d.sync = func(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
			res, err := d.Runtime.SyncPod(ctx, req)
			change(&res)
			return res, err
		}
	}}
}

// lists is a defect in the list of pods.
func lists(found string, change func(p *runtime.Pod)) defect {
	return defect{found, func(d *defective) {
		d.list = func(pods []*runtime.Pod) []*runtime.Pod {
			for _, p := range pods {
				change(p)
			}
			return pods
		}
	}}
}

// statuses is a defect in statuses of pods.
func statuses(found string, change func(s *runtime.PodStatus)) defect {
	return defect{found, func(d *defective) { d.inspect = change }}
}

// statusesOf is a defect in statuses of containers.
func statusesOf(found string, change func(c *runtime.ContainerStatus)) defect {
	return statuses(found, func(s *runtime.PodStatus) {
		for i := range s.Containers {
			change(&s.Containers[i])
		}
	})
}

// podKill is a short name for the many functions with it.
type podKill = runtime.PodKill

// kills is a defect in the end of pods.
func kills(found string, kill func(ctx context.Context, d *defective, req podKill) error) defect {
	return defect{found, func(d *defective) {
		d.kill = func(ctx context.Context, req runtime.PodKill) error { return kill(ctx, d, req) }
	}}
}

// execs is a defect in commands that run in a container. change gets the timeout, and the result.
func execs(
	found string, timeouts func(time.Duration) time.Duration, change func(*runtime.ExecResult, error) error,
) defect {
	return defect{found, func(d *defective) {
		d.exec = func(ctx context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration) (
			res runtime.ExecResult, err error,
		) {
			res, err = d.Runtime.Exec(ctx, id, cmd, timeouts(timeout))
			return res, change(&res, err)
		}
	}}
}

func sameTimeout(timeout time.Duration) time.Duration { return timeout }

var errDefect = errors.New("defect")

// alone fails calls that are made at the same time as another one.
type alone struct{ atomic.Int32 }

func (a *alone) do(f func() error) error {
	defer a.Add(-1)
	if a.Add(1) > 1 {
		return errDefect
	}
	time.Sleep(time.Millisecond)
	return f()
}

// hook is the preStop hook of the only container.
func hook(pod *v1.Pod) *v1.LifecycleHandler {
	if pod == nil || pod.Spec.Containers[0].Lifecycle == nil || pod.Spec.Containers[0].Lifecycle.PreStop == nil {
		return &v1.LifecycleHandler{}
	}
	return pod.Spec.Containers[0].Lifecycle.PreStop
}

func isRunning(c runtime.Container) bool { return c.State == runtime.ContainerRunning }
