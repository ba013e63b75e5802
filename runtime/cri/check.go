package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Check implements [runtime.Checker] with the Status call.
func (r *Runtime) Check(ctx context.Context) error {
	resp, err := call(ctx, r, "Status", "", 0, r.rs.Status, &criv1.StatusRequest{})
	if err != nil {
		return r.explain(ctx, err)
	}
	r.learn(resp)
	if err := r.learnDriver(ctx); err != nil {
		return r.explain(ctx, err)
	}
	if _, err := r.typeName(ctx); err != nil {
		return r.explain(ctx, err)
	}

	notReady := map[string]error{}
	for _, want := range []string{criv1.RuntimeReady, criv1.NetworkReady} {
		switch cond := condition(resp.GetStatus(), want); {
		case cond == nil:
			notReady[want] = fmt.Errorf("container runtime at %s does not report whether %s", r.endpoint, want)
		case !cond.GetStatus():
			// As in kubelet, for those who search for it.
			notReady[want] = fmt.Errorf("%s=false reason:%s message:%s", want, short(cond.GetReason()),
				short(cond.GetMessage()))
		}
	}
	runtimeErr, networkErr := notReady[criv1.RuntimeReady], notReady[criv1.NetworkReady]
	switch {
	case runtimeErr != nil:
		return errors.Join(fmt.Errorf("container runtime not ready: %w", runtimeErr), networkErr)
	case networkErr != nil:
		return fmt.Errorf("%w: %w", runtime.ErrNetworkNotReady, networkErr)
	}
	return nil
}

func condition(st *criv1.RuntimeStatus, typ string) *criv1.RuntimeCondition {
	for _, c := range st.GetConditions() {
		if c.GetType() == typ {
			return c
		}
	}
	return nil
}

// explain adds advice to the error of a call that every working runtime answers at once.
func (r *Runtime) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, runtime.ErrUnavailable):
		return fmt.Errorf("container runtime at %s does not answer; is it running, is this its CRI socket, and may "+
			"this user open it? %w", r.endpoint, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("container runtime at %s did not answer within %s; look at its log: %w: %w", r.endpoint,
			r.opts.CallTimeout, runtime.ErrUnavailable, err)
	default:
		return fmt.Errorf("container runtime at %s: %w", r.endpoint, err)
	}
}

// learn stores the features of the runtime and of its handlers.
func (r *Runtime) learn(resp *criv1.StatusResponse) {
	handlers := []runtime.Handler{}
	for _, h := range resp.GetRuntimeHandlers() {
		handlers = append(handlers, runtime.Handler{
			Name:                    h.GetName(),
			RecursiveReadOnlyMounts: h.GetFeatures().GetRecursiveReadOnlyMounts(),
			UserNamespaces:          h.GetFeatures().GetUserNamespaces(),
		})
	}
	slices.SortFunc(handlers, func(a, b runtime.Handler) int { return strings.Compare(a.Name, b.Name) })
	r.handlers.Store(&handlers)
	r.hostProcesses.Store(condition(resp.GetStatus(), runtime.ConditionHostProcesses).GetStatus())
	r.groupsPolicy.Store(resp.GetFeatures().GetSupplementalGroupsPolicy())
	r.mountOptions.Store(resp.GetFeatures().GetMountOptions())
}

// learnDriver asks for the runtime's cgroup driver, once. Runtimes that do not implement the
// call have none to report.
func (r *Runtime) learnDriver(ctx context.Context) error {
	if r.cgroupDriver.Load() != nil {
		return nil
	}
	resp, err := call(ctx, r, "RuntimeConfig", "", 0, r.rs.RuntimeConfig, &criv1.RuntimeConfigRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return err
	}
	driver := ""
	if linux := resp.GetLinux(); linux != nil { // else the getter returns systemd
		switch d := linux.GetCgroupDriver(); d {
		case criv1.CgroupDriver_SYSTEMD, criv1.CgroupDriver_CGROUPFS:
			driver = strings.ToLower(d.String())
		default:
			return fmt.Errorf("unknown cgroup driver %d", d)
		}
	}
	r.cgroupDriver.Store(&driver)
	return nil
}

// Features implements [runtime.FeatureReporter]. The name, the version and the cgroup driver
// are those of the first successful Check.
func (r *Runtime) Features() runtime.Features {
	f := runtime.Features{SupplementalGroupsPolicy: r.groupsPolicy.Load(), MountOptions: r.mountOptions.Load(),
		HostProcesses: r.hostProcesses.Load()}
	if driver := r.cgroupDriver.Load(); driver != nil {
		f.CgroupDriver = *driver
	}
	if v := r.version.Load(); v != nil {
		f.Name, f.Version = v.GetRuntimeName(), v.GetRuntimeVersion()
	}
	if handlers := r.handlers.Load(); handlers != nil {
		f.Handlers = *handlers
	}
	return f
}

// SetPodCIDR implements [runtime.PodCIDRSetter] with the UpdateRuntimeConfig call. A runtime
// that does not implement the call needs no addresses.
func (r *Runtime) SetPodCIDR(ctx context.Context, cidr string) error {
	_, err := call(ctx, r, "UpdateRuntimeConfig", "", 0, r.rs.UpdateRuntimeConfig, &criv1.UpdateRuntimeConfigRequest{
		RuntimeConfig: &criv1.RuntimeConfig{NetworkConfig: &criv1.NetworkConfig{PodCidr: cidr}},
	})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	return err
}

// canMountReadOnlyDeep reports whether the handler can make mounts recursively read-only
// (KEP-3857).
func (r *Runtime) canMountReadOnlyDeep(ctx context.Context, handler string) (bool, error) {
	if err := r.learnOnce(ctx); err != nil {
		return false, err
	}
	return slices.ContainsFunc(*r.handlers.Load(),
		func(h runtime.Handler) bool { return h.Name == handler && h.RecursiveReadOnlyMounts }), nil
}

// learnOnce requests the features of the runtime, unless they are known.
func (r *Runtime) learnOnce(ctx context.Context) error {
	if r.handlers.Load() != nil {
		return nil
	}
	resp, err := call(ctx, r, "Status", "", 0, r.rs.Status, &criv1.StatusRequest{})
	if err == nil {
		r.learn(resp)
	}
	return err
}
