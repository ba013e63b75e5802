package podmanager_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func testPod(uid, name string, change ...func(*v1.Pod)) *v1.Pod {
	return testpod.New(name, append([]testpod.Option{testpod.UID(types.UID(uid))}, change...)...)
}

func mirror(p *v1.Pod) { p.Annotations = map[string]string{podspec.AnnotationConfigMirror: "hash"} }

func uids(pods []*v1.Pod) []string {
	ids := []string{}
	for _, p := range pods {
		ids = append(ids, string(p.UID))
	}
	return ids
}

func TestManager(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	static, other := testPod("s", "b"), testPod("o", "a")
	m.Set(static)
	m.Set(other)
	m.Set(testPod("m", "b", mirror))
	m.Set(testPod("orphan", "gone", mirror))

	assert.Equal(t, []string{"o", "s"}, uids(m.Pods()), "sorted by name, without mirror pods")
	d := m.Snapshot()
	assert.Equal(t, []string{"o", "s"}, uids(d.Pods))
	assert.Equal(t, []string{"m", "orphan"}, uids(d.Mirrors))
	assert.Equal(t, []string{"orphan"}, uids(d.OrphanedMirrors))

	_, ok := m.ByUID("m")
	assert.False(t, ok, "mirror pods are none of the pods")
	got, ok := m.ByName("default", "b")
	require.True(t, ok)
	assert.Same(t, static, got)
	got, ok = m.MirrorOf(static)
	require.True(t, ok)
	assert.EqualValues(t, "m", got.UID)
	got, ok = m.StaticOf(got)
	require.True(t, ok)
	assert.Same(t, static, got)
	assert.EqualValues(t, "s", m.TranslateUID("m"))
	assert.EqualValues(t, "s", m.TranslateUID("s"))
	assert.EqualValues(t, "orphan", m.TranslateUID("orphan"))

	m.Remove(static)
	_, ok = m.ByName("default", "b")
	assert.False(t, ok)
	assert.EqualValues(t, "m", m.TranslateUID("m"))
	m.Remove(static)
	assert.Equal(t, []string{"o"}, uids(m.Pods()))
	assert.Equal(t, []string{"o", "s"}, uids(d.Pods), "a snapshot does not change")
}

func TestManagerReplacesByName(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	old, fresh := testPod("1", "a"), testPod("2", "a")
	m.Set(old)
	m.Set(fresh) // before the old one is removed, as the stream has it
	got, _ := m.ByName("default", "a")
	assert.Same(t, fresh, got)
	m.Remove(old)
	got, _ = m.ByName("default", "a")
	assert.Same(t, fresh, got)

	m.Set(old)
	m.Remove(old)
	got, ok := m.ByName("default", "a")
	require.True(t, ok)
	assert.Same(t, fresh, got, "the older one has its name back")
}

func byNameThenUID(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// TestManagerModel compares the indexes with a plain list of pods.
func TestManagerModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := podmanager.New()
		model := map[types.UID]*v1.Pod{}
		type held struct{ snapshot, copied []*v1.Pod }
		var taken []held
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				uid := rapid.StringMatching("[a-f]").Draw(rt, "uid")
				pod := testPod(uid, rapid.StringMatching("[x-z]").Draw(rt, "name"))
				if rapid.Bool().Draw(rt, "mirror") {
					mirror(pod)
				}
				model[pod.UID] = pod
				m.Set(pod)
			},
			"remove": func(rt *rapid.T) {
				pod := testPod(rapid.StringMatching("[a-f]").Draw(rt, "uid"), "any")
				delete(model, pod.UID)
				m.Remove(pod)
			},
			"snapshot": func(*rapid.T) {
				s := m.Pods()
				taken = append(taken, held{s, slices.Clone(s)})
			},
			"": func(rt *rapid.T) {
				var pods, mirrors []*v1.Pod
				named := map[string]bool{}
				for _, p := range model {
					if podspec.IsMirror(p) {
						mirrors = append(mirrors, p)
						continue
					}
					pods = append(pods, p)
					named[p.Name] = true
					got, ok := m.ByUID(p.UID)
					require.True(rt, ok)
					require.Same(rt, p, got)
					got, ok = m.ByName("default", p.Name)
					require.True(rt, ok)
					require.Equal(rt, p.Name, got.Name)
					require.Same(rt, model[got.UID], got)
				}
				for _, name := range []string{"x", "y", "z"} {
					_, ok := m.ByName("default", name)
					require.Equal(rt, named[name], ok)
				}
				slices.SortFunc(pods, byNameThenUID)
				slices.SortFunc(mirrors, byNameThenUID)
				d := m.Snapshot()
				require.Equal(rt, uids(pods), uids(d.Pods))
				require.Equal(rt, uids(mirrors), uids(d.Mirrors))
				for _, h := range taken {
					require.Equal(rt, h.copied, h.snapshot, "snapshots do not change")
				}
			},
		})
	})
}

func TestManagerConcurrently(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				pod := testPod(fmt.Sprintf("%d-%d", w, i), fmt.Sprint(i))
				m.Set(pod)
				_ = len(m.Pods())
				m.ByName("default", pod.Name)
				if i%2 == 0 {
					m.Remove(pod)
				}
			}
		})
	}
	wg.Wait()
	assert.Len(t, m.Pods(), 400)
}

// BenchmarkManager has 5000 static pods with their mirror pods.
func BenchmarkManager(b *testing.B) {
	const n = 5000
	pods, mirrors := make([]*v1.Pod, n), make([]*v1.Pod, n)
	m := podmanager.New()
	for i := range n {
		name := fmt.Sprint("pod-", i)
		pods[i], mirrors[i] = testPod(fmt.Sprint("uid-", i), name), testPod(fmt.Sprint("mirror-", i), name, mirror)
		m.Set(pods[i])
		m.Set(mirrors[i])
	}
	for name, do := range map[string]func(i int){
		"Snapshot":           func(int) { m.Snapshot() },
		"Set":                func(i int) { m.Set(pods[i%n]) },
		"Set, then Pods":     func(i int) { m.Set(pods[i%n]); m.Pods() },
		"Set, then Snapshot": func(i int) { m.Set(pods[i%n]); m.Snapshot() },
		"ByUID":              func(i int) { m.ByUID(pods[i%n].UID) },
		"ByName":             func(i int) { m.ByName("default", pods[i%n].Name) },
		"TranslateUID":       func(i int) { m.TranslateUID(mirrors[i%n].UID) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				do(i)
			}
		})
	}
}
