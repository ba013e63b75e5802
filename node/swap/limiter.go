package swap

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of a [Limiter]. The zero value is valid.
type Options struct {
	// Behavior is how containers may use swap. Default: [NoSwap].
	Behavior Behavior
	// Machine returns the sizes of the machine. Default: [ReadMachine].
	Machine func() (Machine, error)
}

var (
	_ lifecycle.Joiner          = (*Limiter)(nil)
	_ lifecycle.Admitter        = (*Limiter)(nil)
	_ lifecycle.ContainerEditor = (*Limiter)(nil)
)

// Limiter gives containers their limits of swap. It is safe for concurrent use.
type Limiter struct {
	opts   Options
	log    logr.Logger
	failed atomic.Bool
}

// New returns a limiter. The error is about the behavior.
func New(opts Options) (*Limiter, error) {
	switch opts.Behavior {
	case "":
		opts.Behavior = NoSwap
	case NoSwap, LimitedSwap:
	default:
		return nil, fmt.Errorf("swap: behavior %q must be %s or %s", opts.Behavior, NoSwap, LimitedSwap)
	}
	if opts.Machine == nil {
		opts.Machine = ReadMachine
	}
	l := &Limiter{opts: opts}
	return l, l.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner].
func (l *Limiter) Join(node lifecycle.Node) error {
	l.log = node.Logger()
	return nil
}

// Name implements [lifecycle.Component].
func (l *Limiter) Name() string { return "swap" }

// EditContainer implements [lifecycle.ContainerEditor]: it sets the limit of swap. It has no error.
func (l *Limiter) EditContainer(_ context.Context, pod *v1.Pod, c *v1.Container) (runtime.ContainerEdits, error) {
	if l.opts.Behavior != LimitedSwap || !May(pod, c) {
		return runtime.ContainerEdits{}, nil
	}
	m, err := l.opts.Machine()
	if err != nil {
		if !l.failed.Swap(true) {
			l.log.Error(err, "Containers get no swap, since the sizes of the machine are not known")
		}
		return runtime.ContainerEdits{}, nil
	}
	l.failed.Store(false)
	if limit := Limit(pod, c, m); limit > 0 {
		return runtime.ContainerEdits{MemorySwap: &limit}, nil
	}
	return runtime.ContainerEdits{}, nil
}

// messageResize is kubelet's (allocation/handlers.go).
const messageResize = "In-place resize of containers with swap is not supported."

// Admit implements [lifecycle.Admitter]: it refuses resizes of the memory of containers with swap, as infeasible.
func (l *Limiter) Admit(req lifecycle.AdmitRequest) (none lifecycle.AdmitResponse, _ error) {
	if l.opts.Behavior != LimitedSwap || req.Held == nil {
		return none, nil
	}
	for kind, c := range podspec.Containers(&req.Pod.Spec) {
		if kind == podspec.EphemeralContainer {
			continue
		}
		held, heldKind := podspec.FindContainer(&req.Held.Spec, c.Name)
		if held == nil || heldKind != kind || restartsForMemory(held) ||
			c.Resources.Requests.Memory().Cmp(*held.Resources.Requests.Memory()) == 0 {
			continue
		}
		if May(req.Pod, c) || May(req.Held, held) {
			return none, &runtime.TerminalError{Reason: v1.PodReasonInfeasible, Message: messageResize,
				Detail: "swap_limitation"}
		}
	}
	return none, nil
}

// restartsForMemory reports whether the container is restarted when its memory changes.
func restartsForMemory(c *v1.Container) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == v1.ResourceMemory {
			return p.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}
