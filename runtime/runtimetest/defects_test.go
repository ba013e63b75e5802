package runtimetest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// defects has, by its name, each defect and the test that finds it.
var defects = map[string]defect{
	"lists only pods that run": {"ListStates", func(d *defective) {
		d.list = func(pods []*runtime.Pod) []*runtime.Pod {
			return slices.DeleteFunc(pods, func(p *runtime.Pod) bool { return !p.Running() })
		}
	}},
	"lists only containers that run": lists("ListStates", func(p *runtime.Pod) {
		p.Containers = slices.DeleteFunc(p.Containers, func(c runtime.Container) bool { return !isRunning(c) })
	}),
	"lists exited containers as running": lists("ListStates", func(p *runtime.Pod) {
		for i := range p.Containers {
			p.Containers[i].State = runtime.ContainerRunning
		}
	}),
	"lists other states in each list": {"ChangesAreSeen", func(d *defective) {
		n := 0
		d.list = func(pods []*runtime.Pod) []*runtime.Pod {
			for _, p := range pods {
				for i := range p.Containers {
					if n++; n%2 == 0 {
						p.Containers[i].State = runtime.ContainerCreated
					}
				}
			}
			return pods
		}
	}},
	"lists no hashes":   lists("Starts", func(p *runtime.Pod) { p.Containers[0].Hash = 0 }),
	"has no start time": statusesOf("Starts", func(c *runtime.ContainerStatus) { c.StartedAt = time.Time{} }),
	"has no addresses":  statuses("Starts", func(s *runtime.PodStatus) { s.IPs = nil }),
	"loses exit codes":  statusesOf("ExitCodes", func(c *runtime.ContainerStatus) { c.ExitCode = 0 }),
	"has no reasons":    statusesOf("ExitCodes", func(c *runtime.ContainerStatus) { c.Reason = "" }),
	"has no paths of logs": statusesOf("Logs", func(c *runtime.ContainerStatus) {
		c.LogPath = ""
	}),
	"does not count restarts": statusesOf("SandboxIsMadeAgain", func(c *runtime.ContainerStatus) { c.RestartCount = 0 }),
	"orders the oldest first": statuses("SandboxIsMadeAgain", func(s *runtime.PodStatus) { slices.Reverse(s.Containers) }),

	"always says that something changed": results("SyncIsIdempotent", func(res *runtime.SyncResult) { res.Changed = true }),
	"never says that something changed":  results("Starts", func(res *runtime.SyncResult) { res.Changed = false }),
	"has no back-off":                    results("BackOff", func(res *runtime.SyncResult) { res.RetryAfter = 0 }),
	"has no reasons to wait":             results("MissingImage", func(res *runtime.SyncResult) { res.Waiting = nil }),
	"is too hasty with the second sync": {"SyncIsIdempotent", func(d *defective) {
		d.sync = func(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
			for _, i := range d.Running(fake.Target{UID: req.Pod.UID}) {
				d.Exit(fake.Target{UID: i.Pod.UID}, 1)
			}
			return d.Runtime.SyncPod(ctx, req)
		}
	}},
	"does not restart": requests("RestartPolicies", func(req *runtime.PodSync) {
		req.Pod.Spec.RestartPolicy = v1.RestartPolicyNever
	}),
	"starts init containers together": requests("InitContainersInOrder", func(req *runtime.PodSync) {
		req.Pod.Spec.Containers = append(req.Pod.Spec.InitContainers, req.Pod.Spec.Containers...)
		req.Pod.Spec.InitContainers = nil
	}),
	"goes on after a failed init container": requests("FailedInitContainerHoldsBack", func(req *runtime.PodSync) {
		if slices.ContainsFunc(req.Status.Containers, func(c runtime.ContainerStatus) bool { return c.ExitCode != 0 }) {
			req.Pod.Spec.InitContainers = nil
		}
	}),
	"has no sidecars": requests("SidecarsEnclose", func(req *runtime.PodSync) {
		for i := range req.Pod.Spec.InitContainers {
			if c := &req.Pod.Spec.InitContainers[i]; c.RestartPolicy != nil {
				c.RestartPolicy = nil
				req.Pod.Spec.Containers = append([]v1.Container{*c}, req.Pod.Spec.Containers...)
			}
		}
		req.Pod.Spec.InitContainers = slices.DeleteFunc(req.Pod.Spec.InitContainers, func(c v1.Container) bool {
			return c.Name != "prepare"
		})
	}),
	"replaces all containers": {"ChangedContainerIsReplacedAlone", func(d *defective) {
		d.sync = func(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
			for i := range req.Status.Containers {
				name := req.Status.Containers[i].Name
				if !slices.ContainsFunc(req.Pod.Spec.Containers, func(c v1.Container) bool { return c.Name == name }) {
					_ = d.Runtime.KillPod(ctx, runtime.PodKill{Pod: req.Pod, Status: req.Status})
				}
			}
			return d.Runtime.SyncPod(ctx, req)
		}
	}},
	"does not recover from a sandbox that is gone": {"StaleStatus", func(d *defective) {
		lost := map[types.UID]bool{}
		d.sync = func(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
			now, err := d.Runtime.InspectPod(ctx, req.Status.PodRef)
			if err == nil && len(now.Sandboxes) < len(req.Status.Sandboxes) {
				lost[req.Pod.UID] = true
			}
			if lost[req.Pod.UID] {
				return runtime.SyncResult{}, errDefect
			}
			return d.Runtime.SyncPod(ctx, req)
		}
	}},
	"one bad image holds back all": {"OneBadContainer", func(d *defective) {
		d.sync = func(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
			for i := range req.Pod.Spec.Containers {
				if c := &req.Pod.Spec.Containers[i]; c.Image == "missing:1" {
					why := v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "missing"}
					return runtime.SyncResult{Waiting: map[string]v1.ContainerStateWaiting{c.Name: why}}, errDefect
				}
			}
			return d.Runtime.SyncPod(ctx, req)
		}
	}},
	"keeps one log": {"LogsOfEachInstance", func(d *defective) {
		d.sync = func(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
			res, err := d.Runtime.SyncPod(ctx, req)
			logs := filepath.Join(req.Host.PodLogsDir, runtime.RefOf(req.Pod).LogDirName(), "main")
			if _, missing := os.Stat(filepath.Join(logs, "1.log")); missing == nil {
				_ = os.Remove(filepath.Join(logs, "0.log"))
			}
			return res, err
		}
	}},
	"syncs one pod at a time": {"ManyPodsAtOnce", func(d *defective) {
		var one alone
		d.sync = func(ctx context.Context, req runtime.PodSync) (res runtime.SyncResult, err error) {
			err = one.do(func() error {
				var err error
				res, err = d.Runtime.SyncPod(ctx, req)
				return err
			})
			return res, err
		}
	}},

	"ignores variables": containers("Environment", func(c *v1.Container) { c.Env = nil }),
	"ignores envFrom":   containers("SecretsAndConfigMaps", func(c *v1.Container) { c.EnvFrom = nil }),
	"ignores secrets in envFrom": containers("SecretsAndConfigMaps", func(c *v1.Container) {
		c.EnvFrom = slices.DeleteFunc(c.EnvFrom, func(f v1.EnvFromSource) bool { return f.SecretRef != nil })
	}),
	"ignores config maps in envFrom": containers("SecretsAndConfigMaps", func(c *v1.Container) {
		c.EnvFrom = slices.DeleteFunc(c.EnvFrom, func(f v1.EnvFromSource) bool { return f.ConfigMapRef != nil })
	}),
	"has the first envFrom win": containers("OrderOfVariables", func(c *v1.Container) { slices.Reverse(c.EnvFrom) }),
	"starts without what envFrom names": containers("MissingSecretsAndConfigMaps", func(c *v1.Container) {
		c.EnvFrom = nil
	}),
	"requires what is optional": containers("OptionalSecretsAndConfigMaps", func(c *v1.Container) {
		for _, f := range c.EnvFrom {
			if f.SecretRef != nil {
				f.SecretRef.Optional = nil
			}
		}
	}),
	"ignores EditSandbox":   requests("EditSandbox", func(req *runtime.PodSync) { req.EditSandbox = nil }),
	"ignores SandboxReady":  requests("SandboxReady", func(req *runtime.PodSync) { req.SandboxReady = nil }),
	"ignores EditContainer": requests("EditContainer", func(req *runtime.PodSync) { req.EditContainer = nil }),
	"ignores edits": requests("EditedEnvironment", func(req *runtime.PodSync) {
		if edit := req.EditContainer; edit != nil {
			req.EditContainer = func(ctx context.Context, c *v1.Container) (runtime.ContainerEdits, error) {
				_, err := edit(ctx, c)
				return runtime.ContainerEdits{}, err
			}
		}
	}),
	"keeps the edits of the first instance": {"EditedEnvironment", func(d *defective) {
		var once sync.Once
		var first runtime.ContainerEdits
		d.sync = func(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
			if edit := req.EditContainer; edit != nil {
				req.EditContainer = func(ctx context.Context, c *v1.Container) (edits runtime.ContainerEdits,
					err error) {
					once.Do(func() { first, err = edit(ctx, c) })
					return first, err
				}
			}
			return d.Runtime.SyncPod(ctx, req)
		}
	}},
	"ignores EnsureImage":     requests("EnsureImage", func(req *runtime.PodSync) { req.EnsureImage = nil }),
	"ignores liveness probes": requests("UnhealthyContainer", func(req *runtime.PodSync) { req.Probes = nil }),
	"ignores startup probes":  requests("StartupProbeHoldsBack", func(req *runtime.PodSync) { req.Probes = nil }),
	"ignores postStart hooks": containers("PostStart", func(c *v1.Container) { c.Lifecycle = nil }),
	"does not record preStop": containers("PreStopWithoutSpec", func(c *v1.Container) { c.Lifecycle = nil }),
	"ignores preStop": kills("PreStop", func(ctx context.Context, d *defective, req podKill) error {
		if req.Pod = req.Pod.DeepCopy(); req.Pod != nil {
			req.Pod.Spec.Containers[0].Lifecycle = nil
		}
		return d.Runtime.KillPod(ctx, req)
	}),
	"waits for preStop for ever": kills("PreStopIsBounded", func(ctx context.Context, d *defective, req podKill) error {
		if sleep := hook(req.Pod).Sleep; sleep != nil {
			time.Sleep(time.Duration(sleep.Seconds) * time.Second)
		}
		return d.Runtime.KillPod(ctx, req)
	}),
	"waits after a failed preStop": kills("FailedPreStop", func(ctx context.Context, d *defective, req podKill) error {
		if hook(req.Pod).Exec != nil {
			time.Sleep(30 * time.Second)
		}
		return d.Runtime.KillPod(ctx, req)
	}),

	"does not stop": kills("Kill", func(context.Context, *defective, podKill) error { return nil }),
	"removes what it kills again": kills("KillTwice", func(ctx context.Context, d *defective, req podKill) error {
		for i := range req.Status.Sandboxes {
			if s := &req.Status.Sandboxes[i]; s.State == runtime.SandboxNotReady {
				_ = d.Runtime.RemoveSandbox(ctx, s.ID)
			}
		}
		return d.Runtime.KillPod(ctx, req)
	}),
	"kills all of the pod": kills("KillOfOneContainer", func(ctx context.Context, d *defective, req podKill) error {
		all, err := d.Runtime.InspectPod(ctx, req.Status.PodRef)
		if err != nil {
			return err
		}
		req.Status = all
		return d.Runtime.KillPod(ctx, req)
	}),
	"needs the spec": kills("KillWithoutSpec", func(ctx context.Context, d *defective, req podKill) error {
		if req.Pod == nil {
			return errDefect
		}
		return d.Runtime.KillPod(ctx, req)
	}),
	"kills at once": kills("GracePeriod", func(ctx context.Context, d *defective, req podKill) error {
		req.GracePeriod = new(int64)
		return d.Runtime.KillPod(ctx, req)
	}),
	"ignores another grace period": kills("GracePeriodZero", func(ctx context.Context, d *defective, req podKill) error {
		req.GracePeriod = nil
		return d.Runtime.KillPod(ctx, req)
	}),
	"keeps the first grace period": {"GracePeriodShortened", func(d *defective) {
		first := map[types.UID]*int64{}
		d.kill = func(ctx context.Context, req runtime.PodKill) error {
			if g := first[req.Status.UID]; g != nil {
				req.GracePeriod = g
			}
			first[req.Status.UID] = req.GracePeriod
			return d.Runtime.KillPod(ctx, req)
		}
	}},
	"ignores the end of the context": kills("Cancelled", func(ctx context.Context, d *defective, req podKill) error {
		return d.Runtime.KillPod(context.WithoutCancel(ctx), req)
	}),
	"ignores the end of the context while it waits": kills("CancelledKill", func(ctx context.Context, d *defective, req podKill) error {
		return d.Runtime.KillPod(context.WithoutCancel(ctx), req)
	}),
	"returns the cause instead of the error": kills("CancelledKill", func(ctx context.Context, d *defective, req podKill) error {
		if err := d.Runtime.KillPod(ctx, req); err == nil || ctx.Err() == nil {
			return err
		}
		return context.Cause(ctx)
	}),

	"has another error for what is missing": execs("Unknown", sameTimeout, func(_ *runtime.ExecResult, err error) error {
		if err != nil {
			return errDefect
		}
		return nil
	}),
	"takes exit codes for errors": execs("Exec", sameTimeout, func(res *runtime.ExecResult, err error) error {
		if err == nil && res.ExitCode != 0 {
			return errDefect
		}
		return err
	}),
	"loses the output": execs("Exec", sameTimeout, func(res *runtime.ExecResult, err error) error {
		res.Output = nil
		return err
	}),
	"ignores the timeout": execs("ExecTimeout", func(time.Duration) time.Duration { return time.Minute },
		func(_ *runtime.ExecResult, err error) error { return err }),
	"removes what runs": {"Remove", func(d *defective) {
		d.remove = func(context.Context, runtime.ContainerID) error { return nil }
	}},
	"fails to remove what is gone": {"Remove", func(d *defective) {
		removed := map[runtime.ContainerID]bool{}
		d.remove = func(ctx context.Context, id runtime.ContainerID) error {
			if removed[id] {
				return runtime.ErrNotFound
			}
			removed[id] = true
			return d.Runtime.RemoveContainer(ctx, id)
		}
	}},
	"removes one at a time": {"ConcurrentRemoval", func(d *defective) {
		var one alone
		d.remove = func(ctx context.Context, id runtime.ContainerID) error {
			return one.do(func() error { return d.Runtime.RemoveContainer(ctx, id) })
		}
	}},
	"does not remove a sandbox that is ready": {"RemoveSandboxOfARunningPod", func(d *defective) {
		d.removeSandbox = func(ctx context.Context, id string) error {
			pods, err := d.Runtime.ListPods(ctx)
			for _, p := range pods {
				if p.Running() && p.Sandboxes[0].ID == id {
					return errDefect
				}
			}
			return errors.Join(err, d.Runtime.RemoveSandbox(ctx, id))
		}
	}},
	"has no events": {"EventsAreHints", func(d *defective) {
		d.watch = func(ctx context.Context, established func()) error {
			established()
			<-ctx.Done()
			return ctx.Err()
		}
	}},
	"gives no reason for the end of its events": {"EventsAreHints", func(d *defective) {
		d.watch = func(ctx context.Context, established func()) error {
			_ = d.Runtime.WatchEvents(ctx, established, func(runtime.Hint) {})
			return nil
		}
	}},
	"loses containers when it restarts": {"Restart", func(d *defective) { d.memory = fake.Reboot }},
	"is not ready": {"Check", func(d *defective) {
		d.check = func(context.Context) error { return errDefect }
	}},
	"does not check the network": {"CheckWithoutNetwork", func(d *defective) {
		d.check = func(ctx context.Context) error { return ctx.Err() }
	}},
}
