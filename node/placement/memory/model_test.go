package memory

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/placement/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func ctxOf(t require.TestingT) context.Context {
	if t, ok := t.(interface{ Context() context.Context }); ok {
		return t.Context()
	}
	panic("no context")
}

// life is a pod of the model: how many of its containers were started, and what it was given.
type life struct {
	pod     *v1.Pod
	started int
	nodes   map[string]numa.Nodes
}

func drawPod(t *rapid.T, uid string) *v1.Pod {
	draw := func(name string) v1.Container {
		size := fmt.Sprintf("%dMi", rapid.IntRange(1, 9*1024).Draw(t, "size"))
		if rapid.IntRange(0, 3).Draw(t, "huge") == 0 {
			return container(name, "memory", size, huge, fmt.Sprintf("%dMi", 2*rapid.IntRange(1, 600).Draw(t, "pages")))
		}
		return container(name, "memory", size)
	}
	var init, main []v1.Container
	for i := range rapid.IntRange(0, 3).Draw(t, "init") {
		c := draw(fmt.Sprintf("init-%d", i))
		if rapid.Bool().Draw(t, "sidecar") {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		init = append(init, c)
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "main") {
		main = append(main, draw(fmt.Sprintf("main-%d", i)))
	}
	p := pod(uid, init, main...)
	if rapid.Bool().Draw(t, "as a whole") {
		makeWhole(t, p)
	}
	return p
}

// makeWhole gives the pod resources as a whole, at least what its containers request at a time, and takes the limits of
// some of its containers.
func makeWhole(t *rapid.T, p *v1.Pod) {
	total := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	for _, name := range []v1.ResourceName{"memory", huge} {
		if q, ok := total[name]; ok {
			q.Add(resource.MustParse(rapid.SampledFrom([]string{"0", "2Mi", "1Gi"}).Draw(t, "more")))
			total[name] = q
		}
	}
	p.Spec.Resources = &v1.ResourceRequirements{Requests: total, Limits: total}
	for _, c := range podspec.Containers(&p.Spec) {
		if rapid.Bool().Draw(t, "shares") {
			c.Resources.Limits = nil
		}
	}
}

func blocksOf(m *Manager, p *v1.Pod) (all []Block) {
	all = m.OfPod(p.UID)
	for _, c := range podspec.Containers(&p.Spec) {
		all = append(all, m.Of(p.UID, c.Name)...)
	}
	return all
}

// check compares the machine state with the sum of all blocks.
func check(t *rapid.T, m *Manager) {
	held := map[v1.ResourceName]uint64{}
	groups := map[int]numa.Nodes{}
	for uid, containers := range m.machine.entries {
		if whole, ok := m.machine.pods[uid]; ok {
			checkParts(t, whole, containers)
			containers = map[string][]state.Block{"": whole.MemoryBlocks}
		}
		for _, blocks := range containers {
			for _, b := range exported(blocks) {
				held[b.Resource] += b.Size
				for id := range b.Nodes.All() {
					if other, ok := groups[id]; ok {
						require.Equal(t, other, b.Nodes, "node %d", id)
					}
					groups[id] = b.Nodes
				}
			}
		}
	}
	reserved := map[v1.ResourceName]uint64{}
	for id := range m.machine.nodes {
		for name, table := range m.machine.nodes[id].MemoryMap {
			require.Equal(t, table.Allocatable, table.Free+table.Reserved)
			reserved[name] += table.Reserved
		}
	}
	for name := range reserved {
		require.Equal(t, held[name], reserved[name], name)
	}
}

// checkParts compares what a pod has as a whole with what its containers have of that.
func checkParts(t *rapid.T, whole state.PodEntry, containers map[string][]state.Block) {
	nodes, total := numa.Nodes(0), amounts{}
	for _, b := range exported(whole.MemoryBlocks) {
		nodes |= b.Nodes
		total[b.Resource] = b.Size
	}
	for name, blocks := range containers {
		require.NotEmpty(t, blocks, "container %s", name)
		for _, b := range exported(blocks) {
			require.Equal(t, nodes, b.Nodes)
			require.LessOrEqual(t, b.Size, total[b.Resource])
			require.Positive(t, b.Size)
		}
	}
}

// Whatever pods come, start, end and are admitted again by later agents: what is given is what the machine state says,
// no node is in two groups, a container keeps what it has, and everything comes back.
func TestModel(t *testing.T) {
	dirs := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		dir := filepath.Join(dirs, fmt.Sprint(runs))
		require.NoError(t, os.Mkdir(dir, 0o700))
		defer func() { _ = os.RemoveAll(dir) }()
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		path := filepath.Join(dir, FileName)
		lives := map[string]*life{}
		opts := reserving(nodes)
		opts.WholePods = true
		// the end of a pod may not have been written
		host := on{gone: func(uid types.UID) bool { return lives[string(uid)] == nil }}
		m := newManager(t, path, nodes, opts)
		require.NoError(t, m.Join(host))
		require.NoError(t, m.Restore())
		count := 0
		some := func(t *rapid.T) *life {
			if len(lives) == 0 {
				t.Skip("no pod")
			}
			for uid := range count {
				l := lives[fmt.Sprint(uid)]
				if l != nil && rapid.Bool().Draw(t, "this") {
					return l
				}
			}
			t.Skip("none")
			return nil
		}
		draw := func(t *rapid.T, hints []numa.Hint) (hint numa.Hint) {
			switch rapid.IntRange(0, 2).Draw(t, "hint") {
			case 0:
				if len(hints) > 0 {
					hint = rapid.SampledFrom(hints).Draw(t, "one")
				}
			case 1:
				hint.Nodes = numa.Of(rapid.IntRange(0, nodes-1).Draw(t, "any"))
			}
			return hint
		}
		byPod := rapid.Bool().Draw(t, "scope pod")
		place := func(t *rapid.T, l *life) error {
			if byPod {
				hints := m.Hints(l.pod, nil)["memory"]
				hint := draw(t, hints)
				done, err := m.AllocatePod(l.pod, hint)
				if err != nil {
					require.False(t, hint.Preferred && len(hints) > 0, "a hint was not true: %v", err)
					m.Refused(l.pod)
				}
				if done {
					return err
				}
			}
			for _, c := range podspec.Containers(&l.pod.Spec) {
				hints := m.Hints(l.pod, c)["memory"]
				hint := draw(t, hints)
				if err := m.Allocate(l.pod, c, hint); err != nil {
					require.False(t, hint.Preferred && len(hints) > 0, "a hint was not true: %v", err)
					m.Refused(l.pod)
					return err
				}
			}
			return nil
		}
		// again places a pod that was admitted before. One that has nothing may need something with another scope.
		again := func(t *rapid.T, l *life) bool {
			none := isWhole(l.pod) && len(blocksOf(m, l.pod)) == 0
			err := place(t, l)
			require.True(t, err == nil || none, "it was admitted before: %v", err)
			return err == nil
		}
		end := func(l *life) {
			require.NoError(t, m.Ended(ctxOf(t), lifecycle.EndedRequest{Pod: l.pod}))
			delete(lives, string(l.pod.UID))
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { check(t, m) },
			"admit": func(t *rapid.T) {
				l := &life{pod: drawPod(t, fmt.Sprint(count)), nodes: map[string]numa.Nodes{}}
				count++
				if place(t, l) == nil {
					lives[string(l.pod.UID)] = l
					write(t, m, l.pod)
				}
			},
			"start": func(t *rapid.T) {
				l := some(t)
				i := 0
				for _, c := range podspec.Containers(&l.pod.Spec) {
					if i == l.started {
						set := start(t, m, l.pod, c.Name)
						require.Equal(t, len(m.Of(l.pod.UID, c.Name)) == 0, set == "")
						require.True(t, set != "" || isWhole(l.pod))
						for _, b := range m.Of(l.pod.UID, c.Name) {
							require.Equal(t, set, b.Nodes.String())
							l.nodes[c.Name] = b.Nodes
						}
						l.started++
						return
					}
					i++
				}
			},
			"end": func(t *rapid.T) { end(some(t)) },
			"refused by another component": func(t *rapid.T) {
				p := drawPod(t, fmt.Sprint(count))
				if count++; place(t, &life{pod: p}) == nil {
					m.Refused(p)
				}
				require.Empty(t, blocksOf(m, p))
			},
			"again": func(t *rapid.T) { // a static pod has the same UID
				l := some(t)
				end(l)
				l.nodes, l.started = map[string]numa.Nodes{}, 0
				if place(t, l) == nil {
					lives[string(l.pod.UID)] = l
					write(t, m, l.pod)
				}
			},
			"restart": func(t *rapid.T) {
				byPod = rapid.Bool().Draw(t, "scope pod")
				m = newManager(t, path, nodes, opts)
				require.NoError(t, m.Join(host))
				for uid := range count {
					l := lives[fmt.Sprint(uid)]
					if l == nil || l.started > 0 || rapid.IntRange(0, 3).Draw(t, "refused") > 0 {
						continue
					}
					if rapid.Bool().Draw(t, "admitted") {
						again(t, l)
					}
					m.Refused(l.pod)
					require.Empty(t, blocksOf(m, l.pod))
					delete(lives, string(l.pod.UID))
				}
				require.NoError(t, m.Restore())
				for uid := range count {
					l := lives[fmt.Sprint(uid)]
					if l == nil {
						continue
					}
					if !again(t, l) {
						delete(lives, string(l.pod.UID))
						continue
					}
					write(t, m, l.pod) // as before each start of a container
					for name, nodes := range l.nodes {
						for _, b := range m.Of(l.pod.UID, name) {
							require.Equal(t, nodes, b.Nodes)
						}
					}
				}
			},
		})
		for _, l := range lives {
			end(l)
		}
		check(t, m)
		require.Equal(t, m.empty().nodes, m.machine.nodes)
	})
}
