package cri

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// world is a runtime of some pods, with the calls and events about them that are under way.
type world struct {
	x index
	// made has everything that was ever created, items what is still there.
	made, items map[string]worldItem
	// calls have the items that calls have created and not returned yet.
	calls []string
	// stream means that an event stream is established. events are the items that other
	// clients have created and whose event has not come yet.
	stream bool
	events []string
	lists  []worldList
}

type worldItem struct {
	pod types.UID
	// sandbox is the ID of the sandbox of a container, "" for a sandbox.
	sandbox string
}

// worldList is a list under way.
type worldList struct {
	pod    types.UID // "" for all
	number uint64
	// taken means that the runtime has put the reply together.
	taken bool
	reply []*runtime.Pod
}

var worldPods = []types.UID{"a", "b", "c"}

// create adds a sandbox, or a container to a sandbox that is there.
func (w *world) create(t *rapid.T) (id string) {
	item := worldItem{pod: rapid.SampledFrom(worldPods).Draw(t, "pod")}
	id = fmt.Sprintf("s%d", len(w.made))
	if sandboxes := w.sandboxes(item.pod); len(sandboxes) > 0 && rapid.Bool().Draw(t, "container") {
		item.sandbox = rapid.SampledFrom(sandboxes).Draw(t, "sandbox")
		id = fmt.Sprintf("c%d", len(w.made))
	}
	w.made[id], w.items[id] = item, item
	return id
}

func (w *world) sandboxes(pod types.UID) (ids []string) {
	for id, item := range w.items {
		if item.pod == pod && item.sandbox == "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// remove removes something, and a sandbox with its containers.
func (w *world) remove(t *rapid.T) (id string) {
	ids := slices.Sorted(maps.Keys(w.items))
	if len(ids) == 0 {
		t.Skip("nothing to remove")
	}
	id = rapid.SampledFrom(ids).Draw(t, "removed")
	maps.DeleteFunc(w.items, func(other string, item worldItem) bool { return other == id || item.sandbox == id })
	return id
}

// show shows the index an item that was created, and that may be gone again.
func (w *world) show(id string) {
	if item := w.made[id]; item.sandbox == "" {
		w.x.addSandbox(item.pod, id, true)
	} else {
		w.x.addContainer(item.pod, id, "name", item.sandbox)
	}
}

func (w *world) pod(uid types.UID) *runtime.Pod {
	pod := &runtime.Pod{PodRef: runtime.PodRef{UID: uid}}
	for id, item := range w.items {
		switch {
		case item.pod != uid:
		case item.sandbox == "":
			pod.Sandboxes = append(pod.Sandboxes, runtime.Sandbox{ID: id})
		default:
			pod.Containers = append(pod.Containers, runtime.Container{ID: runtime.ContainerID{ID: id},
				SandboxID: item.sandbox})
		}
	}
	return pod
}

// TestIndexIsComplete makes lists, calls and events overlap in any order. Whenever the index
// says that it is complete for a pod, it has what the pod has, but for what is just being
// created.
func TestIndexIsComplete(t *testing.T) {
	complete := 0
	rapid.Check(t, func(t *rapid.T) {
		w := &world{made: map[string]worldItem{}, items: map[string]worldItem{}}
		draw := func(t *rapid.T, from *[]string) string {
			if len(*from) == 0 {
				t.Skip("none")
			}
			i := rapid.IntRange(0, len(*from)-1).Draw(t, "which")
			id := (*from)[i]
			*from = slices.Delete(*from, i, i+1)
			return id
		}
		t.Repeat(map[string]func(*rapid.T){
			"a call creates":     func(t *rapid.T) { w.calls = append(w.calls, w.create(t)) },
			"it returns":         func(t *rapid.T) { w.show(draw(t, &w.calls)) },
			"it fails":           func(t *rapid.T) { w.x.doubt(w.made[draw(t, &w.calls)].pod) },
			"a call has removed": func(t *rapid.T) { w.x.removed(w.remove(t)) },
			"another client creates": func(t *rapid.T) {
				if id := w.create(t); w.stream {
					w.events = append(w.events, id)
				}
			},
			"its event comes":        func(t *rapid.T) { w.show(draw(t, &w.events)) },
			"another client removes": func(t *rapid.T) { w.remove(t) },
			"a stream is established": func(t *rapid.T) {
				if w.stream {
					t.Skip()
				}
				w.stream = true
				w.x.streamBegan()
			},
			"it ends": func(t *rapid.T) {
				if !w.stream {
					t.Skip()
				}
				w.stream, w.events = false, nil
				w.x.streamEnded()
			},
			"a list begins": func(t *rapid.T) {
				w.lists = append(w.lists, worldList{pod: rapid.SampledFrom(append(worldPods, "")).Draw(t, "of"),
					number: w.x.begin()})
			},
			"a list is put together": func(t *rapid.T) {
				i := slices.IndexFunc(w.lists, func(l worldList) bool { return !l.taken })
				if i < 0 {
					t.Skip()
				}
				l := &w.lists[i]
				l.taken = true
				for _, uid := range worldPods {
					if pod := w.pod(uid); uid == l.pod || l.pod == "" && len(pod.Sandboxes)+len(pod.Containers) > 0 {
						l.reply = append(l.reply, pod)
					}
				}
			},
			"a list returns": func(t *rapid.T) {
				var taken []int
				for i, l := range w.lists {
					if l.taken {
						taken = append(taken, i)
					}
				}
				if len(taken) == 0 {
					t.Skip()
				}
				i := rapid.SampledFrom(taken).Draw(t, "list")
				l := w.lists[i]
				w.lists = slices.Delete(w.lists, i, i+1)
				if l.pod == "" {
					w.x.listedAll(l.reply, l.number)
				} else {
					w.x.listedPod(l.reply[0], l.number)
				}
			},
			"": func(t *rapid.T) {
				for _, uid := range worldPods {
					items, ok := w.x.of(uid)
					if !ok {
						continue
					}
					complete++
					for id, item := range w.items {
						if item.pod == uid && !slices.Contains(w.calls, id) && !slices.Contains(w.events, id) {
							assert.True(t, items.has(id), "pod %s has %s", uid, id)
						}
					}
				}
				w.check(t)
			},
		})
	})
	assert.NotZero(t, complete)
}

func (p *podItems) has(id string) bool {
	return slices.ContainsFunc(p.sandboxes, func(s sandboxItem) bool { return s.id == id }) ||
		slices.ContainsFunc(p.containers, func(c containerItem) bool { return c.id == id })
}

// check checks that the index keeps nothing of pods that have nothing.
func (w *world) check(t *rapid.T) {
	sandboxes, containers := 0, 0
	for uid, p := range w.x.pods {
		items := p.items(0)
		sandboxes, containers = sandboxes+len(items.sandboxes), containers+len(items.containers)
		if len(items.sandboxes)+len(items.containers) == 0 {
			assert.NotZero(t, p.doubted, "pod %s has nothing", uid)
		}
		for _, c := range p.containers {
			assert.Same(t, c, w.x.containers[c.id])
		}
	}
	assert.Len(t, w.x.sandboxes, sandboxes)
	assert.Len(t, w.x.containers, containers)
}
