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

func (c *cgroups) Pods() ([]types.UID, error) { return slices.Clone(c.uids), c.err }

func (c *cgroups) Remove(uid types.UID) error {
	if uid == "bad" {
		return errors.New("input/output error")
	}
	if uid == "busy" {
		return nil
	}
	c.uids = slices.DeleteFunc(c.uids, func(u types.UID) bool { return u == uid })
	return nil
}

// goneCgroups removes all cgroups in one call, as *cgroup.Pods does.
type goneCgroups struct{ cgroups }

func (c *goneCgroups) RemoveGone(gone func(types.UID) bool) (map[types.UID]error, error) {
	removed := map[types.UID]error{}
	for _, uid := range slices.Clone(c.uids) {
		switch {
		case !gone(uid):
		case uid == "busy":
			removed[uid] = errors.New("a process is in it, or this agent may not remove it")
		default:
			removed[uid] = c.Remove(uid)
		}
	}
	return removed, c.err
}

// Which cgroups are gone is in the history of their pods, and why others are not.
func TestCgroupsAreRecorded(t *testing.T) {
	uids := []types.UID{"a", "bad", "busy", "runs"}
	each := &cgroups{uids: slices.Clone(uids)}
	once := &goneCgroups{cgroups{uids: slices.Clone(uids), err: errors.New("input/output error")}}
	for _, cg := range []gc.PodCgroups{each, once} {
		got := map[types.UID]string{}
		gone := func(uid types.UID) bool { return uid != "runs" }
		collector, err := gc.New(fake.New(fake.Options{}), gone, gc.Options{Cgroups: cg, Record: func(r runtime.Record) {
			assert.Equal(t, runtime.Record{Pod: runtime.PodRef{UID: r.Pod.UID}, Stage: runtime.StageDone, Kind: runtime.KindRemoveCgroup, Error: r.Error}, r)
			got[r.Pod.UID] = r.Error
		}})
		require.NoError(t, err)
		require.ErrorContains(t, collector.Collect(t.Context()), "input/output error")
		assert.Equal(t, map[types.UID]string{
			"a": "", "bad": "input/output error", "busy": "a process is in it, or this agent may not remove it",
		}, got)
	}
}

// sparing removes no cgroup of the pod "spared".
type sparing struct{ gc.PodCgroups }

func (s sparing) Remove(uid types.UID) error {
	if uid == "spared" {
		return nil
	}
	return s.PodCgroups.Remove(uid)
}

// sparingGone embeds an implementation, and overrides both ways to remove cgroups.
type sparingGone struct{ *goneCgroups }

func (s sparingGone) Remove(uid types.UID) error { return sparing{&s.cgroups}.Remove(uid) }

func (s sparingGone) RemoveGone(gone func(types.UID) bool) (map[types.UID]error, error) {
	return s.goneCgroups.RemoveGone(func(uid types.UID) bool { return uid != "spared" && gone(uid) })
}

// sparingRemove overrides only one of them.
type sparingRemove struct{ *goneCgroups }

func (s sparingRemove) Remove(uid types.UID) error { return sparing{&s.cgroups}.Remove(uid) }

// A wrapper can override the removal of cgroups in the ways that GoneCgroups documents.
func TestWrappedCgroups(t *testing.T) {
	for name, tt := range map[string]struct {
		wrap func(*goneCgroups) gc.PodCgroups
		left []types.UID
	}{
		"the interface is embedded":                  {func(c *goneCgroups) gc.PodCgroups { return sparing{c} }, []types.UID{"spared"}},
		"a type is embedded, both are overridden":    {func(c *goneCgroups) gc.PodCgroups { return sparingGone{c} }, []types.UID{"spared"}},
		"a type is embedded, Remove only overridden": {func(c *goneCgroups) gc.PodCgroups { return sparingRemove{c} }, []types.UID{}},
	} {
		t.Run(name, func(t *testing.T) {
			cg := &goneCgroups{cgroups{uids: []types.UID{"a", "spared"}}}
			collector, err := gc.New(fake.New(fake.Options{}), func(types.UID) bool { return true }, gc.Options{Cgroups: tt.wrap(cg)})
			require.NoError(t, err)
			require.NoError(t, collector.Collect(t.Context()))
			assert.Equal(t, tt.left, cg.uids)
		})
	}
}

func TestCgroupsOfGonePodsAreRemoved(t *testing.T) {
	cg := &cgroups{uids: []types.UID{"a", "runs", "bad", "b"}}
	collector, err := gc.New(fake.New(fake.Options{}), func(uid types.UID) bool { return uid != "runs" }, gc.Options{Cgroups: cg})
	require.NoError(t, err)
	require.EqualError(t, collector.Collect(t.Context()), "pod bad: removing its cgroup: input/output error")
	assert.Equal(t, []types.UID{"runs", "bad"}, cg.uids)

	cg.uids, cg.err = []types.UID{"c"}, errors.New("input/output error")
	require.ErrorContains(t, collector.Collect(t.Context()), "input/output error")
	assert.Empty(t, cg.uids, "what was found")
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
	uids := []types.UID{"removed", "failed", "ready", "none", "unknown"}
	each, once := &cgroups{uids: slices.Clone(uids)}, &goneCgroups{cgroups{uids: slices.Clone(uids)}}
	for _, cg := range []gc.PodCgroups{each, once} {
		collector, err := gc.New(rt, func(types.UID) bool { return true }, gc.Options{Cgroups: cg})
		require.NoError(t, err)
		require.ErrorContains(t, collector.Collect(t.Context()), "device or resource busy")
	}
	assert.Equal(t, []types.UID{"failed", "ready"}, each.uids)
	assert.Equal(t, []types.UID{"failed", "ready"}, once.uids)
}
