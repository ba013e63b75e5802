// Package holdings is the record of what pods hold of a node, such as CPUs, memory or devices: a file that an earlier
// agent or a kubelet has left, which pods of it are still there, and when what they hold is free again.
//
// A manager keeps what a pod holds in its own form. It tells the [Record] which pods the file has, asks it at each
// admission, and hands it the ends of pods:
//
//   - A pod of the file keeps what it holds until it has ended. Pods that have ended while no agent ran, and that
//     nobody reports, are released as soon as they are gone, see [Record.Gone].
//   - A file that does not fit the machine or the settings is dropped if none of its pods runs, as after a reboot.
//   - While the file does not fit, and pods of it run, the record is suspended: nothing is given, pods that run
//     go on, and the file stays as it is. It is resumed when the pods have ended for which it does not fit.
package holdings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Record is the pods that hold something, and their file. Make one with [New]. It is safe for concurrent use. Methods
// that say nothing of a disk or a release may be called under the lock of the manager.
type Record struct {
	*checkpoint.File
	release Release
	node    lifecycle.Node
	log     logr.Logger
	path    string
	opts    Options

	// admitting is held while an earlier pod becomes one of this agent, or is released: never both.
	admitting sync.Mutex
	mu        sync.Mutex // guards the fields below
	pods
	problem error
	dropped bool
}

// Options are what becomes of a file that does not fit. The zero value keeps it.
type Options struct {
	// Reset drops what does not fit.
	Reset bool
	// Leave means that the policy of the file is not used any more: it is removed when its pods have ended.
	Leave bool
	// ListPods lists the pods of the runtime. It may block, and is called once. If it is nil or fails, pods run that
	// have a directory.
	ListPods func() ([]*runtime.Pod, error)
}

// Release frees what a pod holds, and reports whether the file changes. It is called also for pods that hold nothing.
// then is called afterwards, without a lock; nil does nothing.
type Release func(uid types.UID) (changed bool, then func())

// New returns the record of a file. read takes over its content: it calls Earlier for the pods of the file, and Unfit
// if it does not fit. content returns what is written; it is not called while the record is suspended. With
// Options.Leave the file is removed instead.
func New(path string, read func() error, content checkpoint.Content, release Release, opts Options) *Record {
	r := &Record{release: release, path: path, opts: opts}
	r.Join(lifecycle.NopNode{})
	r.File = checkpoint.New(path, func() error {
		err := read()
		r.mu.Lock()
		defer r.mu.Unlock()
		if err == nil {
			r.read, r.ended = true, nil
		}
		return err
	}, func() ([]byte, error) {
		if r.Suspended() != nil {
			return nil, nil
		}
		return content()
	})
	if opts.Leave {
		r.Write = func(path string, _ []byte) error { return checkpoint.Remove(path) }
	}
	return r
}

// Join sets the node, which knows the pods that are gone, and its logger. It is called before the file is read.
func (r *Record) Join(node lifecycle.Node) { r.node, r.log = node, node.Logger() }

// Restore reads the file, unless it is read already. It returns why the file could not be read, or cannot be used.
func (r *Record) Restore() error {
	if err := r.Load(); err != nil {
		return err
	}
	return r.Suspended()
}

// Earlier notes a pod of the file. It reports false if the pod was released before the file was read: it holds nothing.
func (r *Record) Earlier(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	holds := r.restore(uid)
	if !holds {
		r.Changed()
	}
	return holds
}

// Unfit decides what becomes of a file that does not fit, for the pods that have what does not fit: there are none if
// the content of the file is not known. It reports whether that is dropped. Otherwise nothing is given until the pods
// have ended, if suspends is true; without pods it is for good. No problem means that a policy that is not used any
// more has left nothing. Unfit is called by the function that reads the file, once, and logs what it decides.
func (r *Record) Unfit(problem error, pods []types.UID, suspends bool) (dropped bool) {
	dropped = problem == nil || r.opts.Reset || !r.anyRuns(pods)
	r.mu.Lock()
	r.problem, r.dropped = problem, dropped
	if !dropped && suspends {
		r.suspend(problem, pods)
	}
	r.mu.Unlock()
	switch log := r.log.WithValues("path", r.path); {
	case problem == nil:
	case dropped:
		log.Info("A state that does not fit is dropped: no pod of it runs, or that is requested", "reason",
			problem.Error())
	case r.opts.Leave:
		log.Info("The state of a policy that is not used any more stays while pods of it run",
			"reason", problem.Error())
	default:
		log.Error(problem, "A state does not fit, and pods of it run: they go on, and new pods that need the same "+
			"resources are refused")
	}
	if dropped {
		r.Changed()
	}
	return dropped
}

// State returns why the file did not fit when it was read, and whether that was dropped.
func (r *Record) State() (problem error, dropped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem, r.dropped
}

// Suspended returns why nothing is given; nil if the file can be used, or was not read.
func (r *Record) Suspended() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.suspended
}

// Unknown reports whether nothing is given because the content of the file is not known.
func (r *Record) Unknown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.suspended != nil && len(r.unfit) == 0
}

// Admit has the pod be one of this agent, after it has released pods that are gone. goesOn means that the pod ran while
// the record was suspended: it gets nothing, and what it holds is not changed. The error is that of the last read of
// the file, or why nothing is given, if nothing of the pod runs.
func (r *Record) Admit(uid types.UID) (goesOn bool, err error) {
	if err := r.Loaded(); err != nil {
		return false, err
	}
	r.ReleaseGone()
	running := r.Suspended() != nil && r.runs(uid)
	r.admitting.Lock()
	defer r.admitting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admit(uid, running)
}

// GoesOn reports whether the pod was admitted while the record was suspended.
func (r *Record) GoesOn(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.goOn.has(uid)
}

// Runs reports whether the pod is in the file, goes on, or runs as far as the machine shows.
func (r *Record) Runs(uid types.UID) bool {
	r.mu.Lock()
	known := r.known(uid)
	r.mu.Unlock()
	return known || r.runs(uid)
}

// Ended releases what the pod holds, and what pods hold that are gone. It is idempotent. The file is written by Run:
// one that cannot be written does not keep the pod from ending.
func (r *Record) Ended(uid types.UID) {
	_ = r.Load() // what it has of the pod is released, too
	r.free(uid, false)
	r.ReleaseGone()
}

// Refused is Ended for the admission of pods, which does not wait for a disk that fails.
func (r *Record) Refused(uid types.UID) {
	_ = r.Loaded()
	r.free(uid, false)
}

// ReleaseGone releases what pods of an earlier agent hold that are gone. It looks for their directories.
func (r *Record) ReleaseGone() {
	r.mu.Lock()
	uids := r.earlier.list()
	r.mu.Unlock()
	for _, uid := range uids {
		if r.Gone(uid) {
			r.log.Info("What a pod that is gone holds is taken back", "pod", uid, "path", r.path)
			r.free(uid, true)
		}
	}
}

// free releases what the pod holds; with gone not if it was admitted meanwhile.
func (r *Record) free(uid types.UID, gone bool) {
	r.admitting.Lock()
	r.mu.Lock()
	admitted := gone && !r.earlier.has(uid)
	resumed := !admitted && r.pods.release(uid)
	r.mu.Unlock()
	changed, then := false, func() {}
	if !admitted {
		changed, then = r.release(uid)
	}
	r.admitting.Unlock()
	if resumed {
		r.log.Info("A state that did not fit is used again: the pods for which it did not fit have ended",
			"path", r.path)
	}
	if changed || resumed {
		r.Changed()
		r.SaveLater()
	}
	if then != nil {
		then()
	}
}

// Gone reports whether nothing of the pod is left: the node says so, or the pod has no directory. It needs nothing any
// more, and nobody may report its end. Without a root directory it is not known.
func (r *Record) Gone(uid types.UID) bool {
	return r.node.Gone(uid) || r.dir(uid) == missing
}

// runs reports whether something of the pod runs, as far as the node and the directory of the pod show.
func (r *Record) runs(uid types.UID) bool { return r.dir(uid) == exists && !r.node.Gone(uid) }

// anyRuns reports whether one of the pods runs, or any pod if there are none.
func (r *Record) anyRuns(uids []types.UID) bool {
	if r.opts.ListPods != nil {
		if listed, err := r.opts.ListPods(); err == nil {
			return slices.ContainsFunc(listed,
				func(p *runtime.Pod) bool { return p.Running() && (len(uids) == 0 || slices.Contains(uids, p.UID)) })
		}
	}
	if len(uids) > 0 {
		return slices.ContainsFunc(uids, func(uid types.UID) bool { return r.dir(uid) != missing })
	}
	entries, err := os.ReadDir(filepath.Join(r.node.RootDir(), "pods"))
	return len(entries) > 0 || err != nil && (!errors.Is(err, fs.ErrNotExist) || r.dir("") != missing)
}

type existence int

const (
	unknown existence = iota
	exists
	missing
)

// dir looks for the directory of the pod.
func (r *Record) dir(uid types.UID) existence {
	root := r.node.RootDir()
	if root == "" {
		return unknown
	}
	if podspec.IsFileName(uid) {
		if _, err := os.Lstat(filepath.Join(root, "pods", string(uid))); !errors.Is(err, fs.ErrNotExist) {
			return exists
		}
	}
	if _, err := os.Lstat(root); err != nil {
		return unknown
	}
	return missing
}
