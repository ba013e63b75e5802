package prober

import (
	"cmp"
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// stateName is the name of the results among the states.
const stateName = "probes"

// keptResults has the results of each pod.
type keptResults map[types.UID][]keptResult

// keptResult has the results of an instance.
type keptResult struct {
	ID      string `json:"id"`
	Started bool   `json:"started,omitempty"`
	Ready   bool   `json:"ready,omitempty"`
}

// load reads what an earlier run has kept. It is called once.
func (m *Prober) load() {
	if m.keep == nil {
		return
	}
	kept := keptResults{}
	if !m.keep.LoadState(stateName, &kept) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = kept
}

// restore takes over the results that an earlier run has kept of the pod's instances, as far as they still run. They
// are newer than those in the status of the pod. It is called with the lock held; observed may be nil.
func (m *Prober) restore(uid types.UID, observed *runtime.PodStatus) {
	for _, r := range m.kept[uid] {
		id, err := runtime.ParseContainerID(r.ID)
		if err != nil || observed != nil && !runs(observed, id) {
			continue
		}
		s := m.states[id]
		if s == nil {
			s = &state{uid: uid}
			m.states[id] = s
		}
		s.started, s.ready = s.started || r.Started, r.Ready
	}
	delete(m.kept, uid)
}

func runs(observed *runtime.PodStatus, id runtime.ContainerID) bool {
	return slices.ContainsFunc(observed.Containers, func(c runtime.ContainerStatus) bool {
		return c.ID == id && c.State == runtime.ContainerRunning
	})
}

// seed takes over results from the pod's status. It is called with the lock held.
func (m *Prober) seed(spec *v1.Pod) {
	for _, list := range [][]v1.ContainerStatus{spec.Status.InitContainerStatuses, spec.Status.ContainerStatuses} {
		for i := range list {
			cs := &list[i]
			id, err := runtime.ParseContainerID(cs.ContainerID)
			if err != nil || cs.State.Running == nil {
				continue
			}
			m.states[id] = &state{uid: spec.UID, started: cs.Started != nil && *cs.Started, ready: cs.Ready}
		}
	}
}

// results are the results of a Prober as JSON, as they are when they are marshalled.
type results struct{ m *Prober }

// MarshalJSON implements [json.Marshaler].
func (r results) MarshalJSON() ([]byte, error) { return json.Marshal(r.m.all()) }

// all returns the results of all instances, and those of pods that were not added yet.
func (m *Prober) all() keptResults {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(keptResults, len(m.pods)+len(m.kept))
	for uid, list := range m.kept {
		all[uid] = slices.Clone(list)
	}
	for id, s := range m.states {
		all[s.uid] = append(all[s.uid], keptResult{id.String(), s.started, s.ready})
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b keptResult) int { return cmp.Compare(a.ID, b.ID) })
	}
	return all
}
