package podsapi

import (
	"hash/maphash"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// watcher is a client of WatchPods.
type watcher struct {
	stream podsv1alpha1.Pods_WatchPodsServer
	// sent has the pods of which the client knows. It belongs to the goroutine of the request.
	sent map[types.UID]sent
	seed maphash.Seed

	wake flow.Signal
	// dirty are the pods that may have changed, each once, in the order of their first change; isDirty has the same
	// ones. mu of the server guards both.
	dirty   []types.UID
	isDirty map[types.UID]bool
}

// sent is the state of a pod that the client has.
type sent struct {
	pod  *v1.Pod // with the status of the source
	hash uint64  // of the pod with its status
}

// StatusChanged implements [lifecycle.StatusHandler].
func (s *Server) StatusChanged(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		if !w.isDirty[uid] {
			w.dirty, w.isDirty[uid] = append(w.dirty, uid), true
		}
		w.wake.Notify()
	}
}

// take returns the pods that may have changed.
func (s *Server) take(w *watcher) []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	dirty := w.dirty
	w.dirty, w.isDirty = nil, map[types.UID]bool{}
	return dirty
}

// WatchPods implements [podsv1alpha1.PodsServer].
func (s *Server) WatchPods(_ *podsv1alpha1.WatchPodsRequest, stream podsv1alpha1.Pods_WatchPodsServer) error {
	w := &watcher{stream: stream, sent: map[types.UID]sent{}, seed: maphash.MakeSeed(), wake: flow.NewSignal(),
		isDirty: map[types.UID]bool{}}
	s.mu.Lock()
	s.watchers[w] = struct{}{} // before the list, so that no change is missed
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}()
	pods, err := s.desired()
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if err := s.send(w, pod); err != nil {
			return err
		}
	}
	if err := stream.Send(&podsv1alpha1.WatchPodsEvent{
		Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for ctx := stream.Context(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		for _, uid := range s.take(w) {
			if err := s.update(w, uid); err != nil {
				return err
			}
		}
	}
}

// update sends what has changed of the pod.
func (s *Server) update(w *watcher, uid types.UID) error {
	pod, desired := s.node.DesiredPod(uid)
	last, known := w.sent[uid]
	// The state is read after the pod: of one that is removed in between, another change follows.
	state := s.node.State(uid)
	switch {
	case state.Finished || !desired && !state.Known:
		if !known {
			return nil
		}
		if !desired {
			pod = last.pod
		}
		if _, ok := s.node.PodStatus(uid); ok { // the status in which it has ended
			if err := s.send(w, pod); err != nil {
				return err
			}
		}
		delete(w.sent, uid)
		ended := &v1.Pod{}
		ended.Namespace, ended.Name, ended.UID = last.pod.Namespace, last.pod.Name, uid
		data, err := ended.Marshal()
		if err != nil {
			return err
		}
		return w.stream.Send(&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_DELETED, Pod: data})
	case desired:
		return s.send(w, pod)
	case known: // it is ending
		return s.send(w, last.pod)
	}
	return nil
}

// send sends the pod with its status, unless the client has it so.
func (s *Server) send(w *watcher, pod *v1.Pod) error {
	data, err := s.encode(pod)
	if err != nil {
		return err
	}
	event := podsv1alpha1.EventType_ADDED
	now := sent{pod, maphash.Bytes(w.seed, data)}
	if last, known := w.sent[pod.UID]; known {
		if last.hash == now.hash {
			return nil
		}
		event = podsv1alpha1.EventType_MODIFIED
	}
	w.sent[pod.UID] = now
	return w.stream.Send(&podsv1alpha1.WatchPodsEvent{Type: event, Pod: data})
}
