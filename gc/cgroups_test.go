package gc_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// cgroups are cgroups of pods. The removal of the one of the pod "bad" fails. A process is
// in the one of the pod "busy".
type cgroups struct {
	uids []types.UID
	err  error
}

func (c *cgroups) RemoveGone(gone func(types.UID) bool) (map[types.UID]error, error) {
	removed := map[types.UID]error{}
	for _, uid := range slices.Clone(c.uids) {
		switch {
		case !gone(uid):
		case uid == "busy":
			removed[uid] = errors.New("a process is in it, or this agent may not remove it")
		case uid == "bad":
			removed[uid] = errors.New("input/output error")
		default:
			removed[uid] = nil
			c.uids = slices.DeleteFunc(c.uids, func(u types.UID) bool { return u == uid })
		}
	}
	return removed, c.err
}

// Which cgroups are gone is in the history of their pods, and why others are not.
func TestCgroupsAreRecorded(t *testing.T) {
	cg := &cgroups{uids: []types.UID{"a", "bad", "busy", "runs"}, err: errors.New("device busy")}
	got := map[types.UID]string{}
	gone := func(uid types.UID) bool { return uid != "runs" }
	collector, err := gc.New(fake.New(fake.Options{}), gone,
		gc.Options{Cgroups: cg, Observer: runtime.Observer{NonBlocking: true, Record: func(r runtime.Record) {
			assert.Equal(t, runtime.Record{Pod: runtime.PodRef{UID: r.Pod.UID}, Stage: runtime.StageDone,
				Kind: runtime.KindRemoveCgroup, Error: r.Error}, r)
			got[r.Pod.UID] = r.Error
		}}})
	require.NoError(t, err)
	require.ErrorIs(t, collector.Collect(t.Context()), cg.err)
	assert.Equal(t, map[types.UID]string{
		"a": "", "bad": "input/output error", "busy": "a process is in it, or this agent may not remove it",
	}, got)
	assert.Equal(t, []types.UID{"bad", "busy", "runs"}, cg.uids)
}

// While a sandbox is left, its cgroup is in that of its pod: a look at both in each class of cgroup v1
// costs more than all else that a collection does for a pod.
func TestCgroupsWaitForSandboxes(t *testing.T) {
	rt := &holder{failing: map[string]error{"s2": errors.New("device or resource busy")}, pods: []*runtime.Pod{
		{PodRef: ref("removed"), Sandboxes: []runtime.Sandbox{{ID: "s1", State: runtime.SandboxNotReady}}},
		{PodRef: ref("failed"), Sandboxes: []runtime.Sandbox{{ID: "s2", State: runtime.SandboxNotReady}}},
		{PodRef: ref("ready"), Sandboxes: []runtime.Sandbox{{ID: "s3", State: runtime.SandboxReady}}},
		{PodRef: ref("none")},
	}}
	cg := &cgroups{uids: []types.UID{"removed", "failed", "ready", "none", "unknown"}}
	collector, err := gc.New(rt, func(types.UID) bool { return true }, gc.Options{Cgroups: cg})
	require.NoError(t, err)
	require.ErrorContains(t, collector.Collect(t.Context()), "device or resource busy")
	assert.Equal(t, []types.UID{"failed", "ready"}, cg.uids)
}
