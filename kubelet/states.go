package kubelet

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/check"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
)

// rootNode is the node of managers that read their states without an agent.
type rootNode struct {
	lifecycle.NopNode
	dir string
	log logr.Logger
}

// RootDir implements [lifecycle.Node].
func (n rootNode) RootDir() string { return n.dir }

// Logger implements [lifecycle.Node].
func (n rootNode) Logger() logr.Logger { return n.log }

// check has the managers read their states, and returns what becomes of those that exist. It changes nothing.
func (p *placement) check(rootDir string, log logr.Logger) (findings []check.Finding, err error) {
	add := func(name, flag string, m interface {
		lifecycle.Joiner
		State() (problem error, dropped bool)
	}, leaves bool) {
		if err == nil {
			err = m.Join(rootNode{dir: rootDir, log: log})
		}
		if _, missing := os.Lstat(filepath.Join(rootDir, name)); err == nil && missing == nil {
			problem, dropped := m.State()
			findings = append(findings, stateFinding(name, flag, problem, dropped, leaves))
		}
	}
	if p.cpus != nil {
		add(cpus.CheckpointName, resetCPUsFlag, p.cpus, p.leavesCPUs)
	}
	if p.memory != nil {
		add(memory.FileName, resetMemoryFlag, p.memory, p.leavesMemory)
	}
	return findings, err
}

// stateFinding says what becomes of the state of a manager. leaves means that the policy is none.
func stateFinding(name, flag string, problem error, dropped, leaves bool) check.Finding {
	out := check.Finding{Area: check.AreaState, Setting: name, Verdict: check.Lost}
	if problem != nil {
		out.Why = problem.Error()
	}
	ofCPUs := (*cpus.StateError)(nil)
	switch {
	case dropped && problem == nil:
		out.Why = "the policy is none, and nothing runs that has something by it"
	case dropped:
		out.Why += "; no pod of it runs, or the flag is given: it is dropped"
	case problem == nil:
		out.Verdict, out.Why = check.Kept,
			"what containers have of CPUs or memory nodes fits the machine and the settings"
	case leaves && errors.As(problem, &ofCPUs) && len(ofCPUs.Pods) > 0:
		out.Verdict = check.Kept
		out.Why += ": they keep them until they have ended"
	default:
		out.Blocks, out.Do = true, "move these pods to another node first, or start with "+flag
		if leaves {
			out.Why += "; containers that start again have none"
		} else {
			out.Why += "; pods of it go on, and new ones that need the same are refused"
		}
	}
	return out
}
