package podsource

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig"
)

func object(name string, uid types.UID, version string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, ResourceVersion: version},
		Spec: v1.PodSpec{NodeName: "node"}}
}

func TestSupersedes(t *testing.T) {
	deleting := func(pod *v1.Pod) *v1.Pod {
		now := metav1.Now()
		pod.DeletionTimestamp = &now
		return pod
	}
	generation := func(pod *v1.Pod, n int64) *v1.Pod {
		pod.Generation = n
		return pod
	}
	for name, c := range map[string]struct {
		pod, held *v1.Pod
		want      bool
	}{
		"newer":                     {object("a", "u", "10"), object("a", "u", "9"), true},
		"older":                     {object("a", "u", "9"), object("a", "u", "10"), false},
		"the same":                  {object("a", "u", "9"), object("a", "u", "9"), false},
		"no numbers":                {object("a", "u", "b"), object("a", "u", "a"), true},
		"no numbers, the same":      {object("a", "u", "a"), object("a", "u", "a"), false},
		"no numbers, an older spec": {generation(object("a", "u", "b"), 1), generation(object("a", "u", "a"), 2), false},
		"no numbers, not deleted":   {object("a", "u", "b"), deleting(object("a", "u", "a")), false},
		"no numbers, deleted":       {deleting(object("a", "u", "b")), object("a", "u", "a"), true},
	} {
		assert.Equal(t, c.want, supersedes(c.pod, c.held), name)
	}
}

// A database that was restored has older versions. A list of it counts nevertheless.
func TestListAfterARestore(t *testing.T) {
	table := newTable()
	table.replace([]*v1.Pod{object("a", "u", "900")}, "1000")
	restored := object("a", "u", "500")
	c := table.replace([]*v1.Pod{restored}, "600")
	assert.Equal(t, []*v1.Pod{restored}, c.Changed)
	assert.Equal(t, []*v1.Pod{object("a", "u", "601")}, table.set(object("a", "u", "601")).Changed)
}

// Whatever is repeated or comes late: the table has the newest state of each name, and the
// changes lead there.
func TestTableModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type state struct {
			pod     *v1.Pod
			removed bool
		}
		version, uids := 1, 0
		truth := map[string]*v1.Pod{}
		var history []state
		table, received := newTable(), map[types.UID]*v1.Pod{}
		apply := func(c Change) {
			for _, pod := range c.Removed {
				if received[pod.UID] == nil {
					rt.Fatalf("%s was removed, but not known", pod.UID)
				}
				delete(received, pod.UID)
			}
			for _, pod := range c.Changed {
				received[pod.UID] = pod
			}
		}
		apply(table.replace(nil, "1"))
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name")
			version++
			switch old := truth[name]; rapid.IntRange(0, 4).Draw(rt, "op") {
			case 0: // a change, or a new pod
				uid := types.UID("")
				if old == nil {
					uids++
					uid = types.UID(strconv.Itoa(uids))
				} else {
					uid = old.UID
				}
				truth[name] = object(name, uid, strconv.Itoa(version))
				history = append(history, state{truth[name], false})
				apply(table.set(truth[name]))
			case 1:
				if old != nil {
					last := old.DeepCopy()
					last.ResourceVersion = strconv.Itoa(version)
					delete(truth, name)
					history = append(history, state{last, true})
					apply(table.remove(last))
				}
			case 2: // an event that was delivered before
				if len(history) > 0 {
					again := history[rapid.IntRange(0, len(history)-1).Draw(rt, "again")]
					if again.removed {
						apply(table.remove(again.pod))
					} else {
						apply(table.set(again.pod))
					}
				}
			case 3: // a list
				var list []*v1.Pod
				for _, pod := range truth {
					list = append(list, pod.DeepCopy())
				}
				apply(table.replace(list, strconv.Itoa(version)))
			}
			for _, pod := range truth {
				held := table.byUID[pod.UID]
				if held == nil || held.ResourceVersion != pod.ResourceVersion || table.byName[nameOf(pod)] != held ||
					received[pod.UID] != held {
					rt.Fatalf("pod %s (%s): the table has %v", pod.Name, pod.UID, held)
				}
			}
			if len(table.byUID) != len(truth) || len(table.byName) != len(truth) || len(received) != len(truth) {
				rt.Fatalf("the table has %d pods, %d names, %d were received; want %d", len(table.byUID),
					len(table.byName), len(received), len(truth))
			}
		}
	})
}

type sink struct {
	podconfig.SinkBase
	delivered int
}

func (k *sink) Set(pods []*v1.Pod)      { k.delivered += len(pods) }
func (k *sink) Apply(d podconfig.Delta) { k.delivered += len(d.Update) + len(d.Remove) }

// filled returns a store with n pods, and a function that changes one of them.
func filled(t testing.TB, n int) (*sink, func()) {
	src, err := New(apitest.NewClientset(), "node", Options{Observers: []func(Change){func(Change) {}}})
	require.NoError(t, err)
	k := &sink{}
	s := &store{src, k}
	var list []any
	for i := range n {
		list = append(list, object(fmt.Sprint("pod-", i), types.UID(fmt.Sprint(i)), fmt.Sprint(i+1)))
	}
	require.NoError(t, s.Replace(list, "100000"))
	k.delivered = 0
	version := 100000
	return k, func() {
		version++
		_ = s.Update(object("pod-7", "7", strconv.Itoa(version)))
	}
}

// One change among 500 pods costs what it costs among 10.
func TestOneChangeCostsThatOne(t *testing.T) {
	allocs := func(n int) float64 {
		k, change := filled(t, n)
		out := testing.AllocsPerRun(100, change)
		assert.Equal(t, 101, k.delivered)
		return out
	}
	assert.Equal(t, allocs(10), allocs(500))
}

func BenchmarkOneChange(b *testing.B) {
	for _, n := range []int{10, 500} {
		b.Run(fmt.Sprint(n, " pods"), func(b *testing.B) {
			_, change := filled(b, n)
			b.ReportAllocs()
			for b.Loop() {
				change()
			}
		})
	}
}
