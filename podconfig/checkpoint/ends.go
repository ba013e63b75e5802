package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// KeepEnd records that the end of the pod is to be reported when it is gone. The record
// stays when the pod itself is dropped, until EndDelivered. It does not block: [Dir.Run]
// writes the record, before it removes that of the pod.
func (s *Dir) KeepEnd(pod runtime.PodRef) {
	if !podspec.IsFileName(pod.UID) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepEnd(pod)
}

// keepEnd implements KeepEnd. mu is held.
func (s *Dir) keepEnd(pod runtime.PodRef) {
	if s.ends[pod.UID] != pod {
		s.ends[pod.UID] = pod
		s.set(fileOfEnd(pod.UID), pod)
	}
}

// DueEnds returns the pods of KeepEnd that are not desired. It calls KeepEnd for the kept
// pods that are not desired: these were removed while no agent ran, or together with their
// source. Call it before Prune, when all desired pods are known.
func (s *Dir) DueEnds(desired func(uid types.UID) bool) []runtime.PodRef {
	s.mu.Lock()
	uids := slices.AppendSeq(slices.Collect(maps.Keys(s.kept)), maps.Keys(s.ends))
	s.mu.Unlock()
	slices.Sort(uids)
	uids = slices.DeleteFunc(slices.Compact(uids), desired)
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []runtime.PodRef
	for _, uid := range uids {
		if pod := s.kept[uid]; pod != nil {
			s.keepEnd(runtime.RefOf(pod))
		}
		if ref, ok := s.ends[uid]; ok {
			due = append(due, ref)
		}
	}
	return due
}

// EndDelivered removes the record of an end that was delivered.
func (s *Dir) EndDelivered(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, kept := s.ends[uid]; kept {
		delete(s.ends, uid)
		s.set(fileOfEnd(uid), nil)
	}
}

func fileOfEnd(uid types.UID) file {
	f := fileOfPod(uid)
	f.end = true
	return f
}

// loadEnd adds the end of a record. mu is held.
func (s *Dir) loadEnd(name string, record []byte) error {
	data, err := unpack(name, record, nil)
	if err != nil {
		return err
	}
	var ref runtime.PodRef
	if err := json.Unmarshal(data, &ref); err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	if !podspec.IsFileName(ref.UID) || fileOfEnd(ref.UID).name != name {
		return fmt.Errorf("%w of that name: the pod in it has UID %q", errForeign, ref.UID)
	}
	s.ends[ref.UID] = ref
	return nil
}
