package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/check"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// outcome is what becomes of the state of a manager that an earlier agent, or a kubelet, has left.
type outcome int

const (
	// stateKept is that of a state that fits.
	stateKept outcome = iota
	// stateDropped is that of a state, or the part of it that does not fit, of which nothing runs, or that a flag
	// resets.
	stateDropped
	// stateSuspended is that of a state that does not fit while pods of it run: nothing is given until they have ended.
	stateSuspended
	// stateLeft is that of a state of the policy static while the policy is none: containers keep what they have.
	stateLeft
)

// stateFile is a state, and what becomes of it.
type stateFile struct {
	// file is the name in the root directory, and flag resets it.
	file, flag string
	outcome    outcome
	// err is why it does not fit; nil if it does, or nothing is in it.
	err error
	// leave removes the file, since no manager writes it: that of a policy static when the policy is none. Otherwise
	// nil.
	leave func() error
}

// finding returns what a check reports. The file exists.
func (f stateFile) finding() check.Finding {
	out := check.Finding{Area: check.AreaState, Setting: f.file, Verdict: check.Kept}
	if f.err != nil {
		out.Why = f.err.Error()
	}
	pods, _ := unfit(f.err)
	switch {
	case f.outcome == stateKept:
		out.Why = "what containers have of CPUs or memory nodes fits the machine and the settings"
	case f.outcome == stateLeft && f.file == cpus.CheckpointName && len(pods) > 0:
		out.Why += ": they keep them until they have ended"
	case f.outcome == stateDropped && f.err == nil:
		out.Verdict, out.Why = check.Lost, "the policy is none, and nothing runs that has something by it"
	case f.outcome == stateDropped:
		out.Verdict, out.Why = check.Lost, out.Why+"; no pod of it runs, or the flag is given: it is dropped"
	default:
		out.Verdict, out.Blocks = check.Lost, true
		out.Why += "; pods of it go on, and new ones that need the same are refused"
		if f.outcome == stateLeft {
			out.Why = f.err.Error() + "; containers that start again have none"
		}
		out.Do = "move these pods to another node first, or start with " + f.flag
	}
	return out
}

// unfit returns the pods of a state that does not fit, and whether the error is that of such a state. There are no pods
// if it cannot be read.
func unfit(err error) (pods []types.UID, ok bool) {
	ofCPUs, ofMemory := (*cpus.StateError)(nil), (*memory.StateError)(nil)
	switch {
	case errors.As(err, &ofCPUs):
		return ofCPUs.Pods, true
	case errors.As(err, &ofMemory):
		return ofMemory.Pods, true
	default:
		return nil, false
	}
}

// lister lists the pods of a container runtime.
type lister interface {
	ListPods(ctx context.Context) ([]*runtime.Pod, error)
}

// runs reports whether one of the pods runs, or any pod if there are none. If the runtime does not answer, a pod runs
// that has a directory.
func runs(ctx context.Context, s *config.Settings, rt lister, pods []types.UID) bool {
	listed, err := rt.ListPods(ctx)
	if err == nil {
		return slices.ContainsFunc(listed,
			func(p *runtime.Pod) bool { return p.Running() && (len(pods) == 0 || slices.Contains(pods, p.UID)) })
	}
	if len(pods) == 0 {
		entries, err := os.ReadDir(filepath.Join(s.RootDir, "pods"))
		return len(entries) > 0 || err != nil && !errors.Is(err, os.ErrNotExist)
	}
	gone := hasNoDir(s)
	return slices.ContainsFunc(pods, func(uid types.UID) bool { return !gone(uid) })
}

// restore reads the state of a manager. If it does not fit, it is dropped in the manager, or the manager is suspended.
// Other errors keep the agent from starting.
func (p *placement) restore(ctx context.Context, s *config.Settings, rt lister, manager interface {
	Restore() error
	Reset() error
}, f stateFile, reset bool) error {
	err := manager.Restore()
	pods, isUnfit := unfit(err)
	switch {
	case err != nil && !isUnfit:
		return err
	case err != nil && (reset || !runs(ctx, s, rt, pods)):
		f.outcome, f.err = stateDropped, err
		if err := manager.Reset(); err != nil {
			return err
		}
	case err != nil:
		f.outcome, f.err = stateSuspended, err
	}
	p.states = append(p.states, f)
	return nil
}

// left decides about a state of the policy static while the policy is none. It reports whether containers of pods that
// run have resources by it, and it is known which.
func (p *placement) left(ctx context.Context, s *config.Settings, rt lister, f stateFile, static bool, err error,
	reset bool) (bool, error) {
	pods, isUnfit := unfit(err)
	switch {
	case err != nil && !isUnfit:
		return false, err
	case !static:
		return false, nil
	case err == nil || reset || !runs(ctx, s, rt, pods):
		f.outcome, f.err = stateDropped, err
	default:
		f.outcome, f.err = stateLeft, err
	}
	p.states = append(p.states, f)
	return f.outcome == stateLeft && len(pods) > 0, nil
}

// settle logs what becomes of the states, and removes those that are not needed any more.
func (p *placement) settle() error {
	for _, f := range p.states {
		log := p.log.WithValues("file", f.file, "flag", f.flag)
		switch {
		case f.err == nil:
		case f.outcome == stateDropped:
			log.Info("A state that does not fit is dropped: no pod of it runs, or the flag is given",
				"reason", f.err.Error())
		case f.outcome == stateSuspended:
			log.Error(f.err, "A state does not fit, and pods of it run: they go on, and new pods that need the same "+
				"resources are refused. The flag drops the state")
		default:
			log.Info("The state of a policy that is not used any more stays while pods of it run. The flag drops it",
				"reason", f.err.Error())
		}
		if f.outcome != stateDropped || f.leave == nil {
			continue
		}
		if err := f.leave(); err != nil {
			return fmt.Errorf("removing the state of a policy that is not used any more: %w", err)
		}
	}
	return nil
}
