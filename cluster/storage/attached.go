package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

// The errors of [Storage.Attached] have kubelet's texts.
var (
	// ErrNotInUse means that the volume is not in the status of the node as one that is in use. The controller could
	// detach it.
	ErrNotInUse = errors.New("volume has not been added to the list of VolumesInUse in the node's volume status")
	// ErrNotAttached means that the volume is in use, and the controller has not attached it.
	ErrNotAttached = errors.New("volume not attached according to node status")
)

// waiters are the pods that wait for a volume.
type waiters struct {
	// problem is why they wait, as they have received it.
	problem error
	pods    map[types.UID]struct{}
}

// Attached implements [csinode.Cluster], without a request: it reads the newest known node object. The error wraps
// [ErrNotInUse], [ErrNotAttached], or [ErrNotRead] if the node object is not known. In this last case it returns nil if
// an attachment of the volume is kept, which has been attached when the API server was last reached.
func (s *Storage) Attached(_ context.Context, volume v1.UniqueVolumeName, pod *v1.Pod) error {
	kept := s.wasAttached(volume)
	s.mu.Lock()
	defer s.mu.Unlock()
	problem := ErrNotRead
	switch {
	case s.node != nil:
		problem = stateOf(s.node).problem(volume)
	case kept:
		problem = nil
	}
	if problem == nil {
		s.stop(volume, pod.UID)
		return nil
	}
	w := s.waiting[volume]
	if w == nil {
		w = &waiters{pods: map[types.UID]struct{}{}}
		s.waiting[volume] = w
	}
	w.problem = problem // the node object is the one of the other pods, too
	w.pods[pod.UID] = struct{}{}
	if problem == ErrNotRead {
		return fmt.Errorf("node object %s: %w", s.nodeName, problem)
	}
	return fmt.Errorf("%w: %q", problem, volume)
}

// wasAttached reports whether an attachment of the volume is kept.
func (s *Storage) wasAttached(volume v1.UniqueVolumeName) bool {
	driver, handle, ok := csinode.SplitUniqueName(volume)
	if ok {
		_, ok = s.attachments.get(csinode.AttachmentName(handle, driver, s.nodeName))
	}
	return ok
}

// NodeChanged takes each new version of the node object, which must not be changed afterwards. It calls Options.Sync
// for the pods that wait for a volume whose state has changed. It does not block.
func (s *Storage) NodeChanged(node *v1.Node) {
	s.publisher.nodeChanged(node.UID)
	for _, pod := range s.learn(node) {
		if s.opts.Sync != nil {
			s.opts.Sync(pod)
		}
	}
}

// learn takes the node object, and returns the pods to sync.
func (s *Storage) learn(node *v1.Node) (pods []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil && slices.ContainsFunc(s.node.Status.VolumesAttached, func(a v1.AttachedVolume) bool {
		return !slices.ContainsFunc(node.Status.VolumesAttached, func(b v1.AttachedVolume) bool {
			return a.Name == b.Name
		})
	}) {
		s.recheck.Notify() // a volume was detached
	}
	s.node = node
	if len(s.waiting) == 0 {
		return nil
	}
	state := stateOf(node)
	for volume, w := range s.waiting {
		problem := state.problem(volume)
		if problem == w.problem {
			continue
		}
		pods = slices.AppendSeq(pods, maps.Keys(w.pods))
		if w.problem = problem; problem == nil {
			delete(s.waiting, volume)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// known returns the newest known node object, nil before there is one.
func (s *Storage) known() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// stop has a pod not wait for the volume any more. mu is held.
func (s *Storage) stop(volume v1.UniqueVolumeName, pod types.UID) {
	if w := s.waiting[volume]; w != nil {
		if delete(w.pods, pod); len(w.pods) == 0 {
			delete(s.waiting, volume)
		}
	}
}

// stopWaiting forgets the pods for which gone returns true.
func (s *Storage) stopWaiting(gone func(types.UID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for volume, w := range s.waiting {
		for pod := range w.pods {
			if gone(pod) {
				s.stop(volume, pod)
			}
		}
	}
}

// volumes are the volumes of a node object.
type volumes struct {
	inUse, attached map[v1.UniqueVolumeName]struct{}
}

func stateOf(node *v1.Node) volumes {
	v := volumes{map[v1.UniqueVolumeName]struct{}{}, map[v1.UniqueVolumeName]struct{}{}}
	for _, name := range node.Status.VolumesInUse {
		v.inUse[name] = struct{}{}
	}
	for _, a := range node.Status.VolumesAttached {
		v.attached[a.Name] = struct{}{}
	}
	return v
}

// problem returns why a pod cannot use the volume yet, nil if it can.
func (v volumes) problem(volume v1.UniqueVolumeName) error {
	if _, ok := v.inUse[volume]; !ok {
		return ErrNotInUse
	}
	if _, ok := v.attached[volume]; !ok {
		return ErrNotAttached
	}
	return nil
}
