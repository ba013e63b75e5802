package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The corpus of TestVerdicts: good pods from testdata/verdicts, each of their fields
// replaced by every value that might be thought of, one field at a time, and
// random heaps of such edits. It is the same in each run.

// corpusPod is one pod of the corpus, as the tree of its JSON.
type corpusPod struct {
	// name says how the pod was made of which good one.
	name string
	pod  map[string]any
	// edits is the number of edits that made it.
	edits int
}

// randomManifests is how many pods have several edits.
const randomManifests = 2000

// corpus returns the good pods, then what was made of them.
func corpus(t *testing.T) (good, edited []corpusPod) {
	good = goodManifests(t)
	seen := map[string]bool{}
	add := func(m corpusPod) {
		if key := string(render(t, m.pod)); !seen[key] {
			seen[key] = true
			edited = append(edited, m)
		}
	}
	for _, m := range good {
		for _, e := range edits(nil, m.pod) {
			add(e.on(m))
		}
		for _, e := range transplants(good, m) {
			add(e.on(m))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range randomManifests {
		m := good[random.IntN(len(good))]
		for range 2 + random.IntN(4) {
			var choice []edit
			if random.IntN(3) == 0 {
				choice = transplants(good, m)
			}
			if len(choice) == 0 {
				choice = edits(nil, m.pod)
			}
			m = choice[random.IntN(len(choice))].on(m)
		}
		add(m)
	}
	return good, edited
}

func goodManifests(t *testing.T) (good []corpusPod) {
	paths, err := filepath.Glob("testdata/verdicts/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data, err = yaml.YAMLToJSONStrict(data)
		require.NoError(t, err, path)
		good = append(good, corpusPod{name: strings.TrimSuffix(filepath.Base(path), ".yaml"), pod: parse(t, data)})
	}
	return good
}

func parse(t *testing.T, data []byte) (pod map[string]any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	require.NoError(t, d.Decode(&pod))
	return pod
}

func render(t *testing.T, pod map[string]any) []byte {
	t.Helper()
	data, err := json.Marshal(pod)
	require.NoError(t, err)
	return data
}

// edit is one change of a tree.
type edit struct {
	// path leads to what is changed: the keys of objects, the indices of lists.
	path []any
	// value is what is there afterwards; nothing, if absent.
	value  any
	absent bool
}

// on makes a new manifest.
func (e edit) on(m corpusPod) corpusPod {
	what := "absent"
	if !e.absent {
		data, _ := json.Marshal(e.value)
		what = string(data)
		if len(what) > 100 {
			what = fmt.Sprintf("%s… (%d bytes)", what[:100], len(what))
		}
	}
	name := fmt.Sprintf("%s, %s = %s", m.name, pathString(e.path), what)
	return corpusPod{name: name, pod: replaced(m.pod, e.path, e).(map[string]any), edits: m.edits + 1}
}

// replaced returns a tree that differs from the given one at the path, and shares
// the rest with it.
func replaced(tree any, path []any, e edit) any {
	if len(path) == 0 {
		return e.value
	}
	switch step := path[0].(type) {
	case string:
		object := maps.Clone(tree.(map[string]any))
		if len(path) == 1 && e.absent {
			delete(object, step)
		} else {
			object[step] = replaced(object[step], path[1:], e)
		}
		return object
	case int:
		list := slices.Clone(tree.([]any))
		if len(path) == 1 && e.absent {
			return slices.Delete(list, step, step+1)
		}
		list[step] = replaced(list[step], path[1:], e)
		return list
	default:
		panic(fmt.Sprintf("a step of type %T", step))
	}
}

func pathString(path []any) string {
	var s strings.Builder
	for _, step := range path {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&s, "[%d]", i)
		} else {
			fmt.Fprintf(&s, ".%s", step)
		}
	}
	return strings.TrimPrefix(s.String(), ".")
}

// edits returns all changes of what stands at the path, and below it.
func edits(path []any, tree any) (all []edit) {
	key := lastKey(path)
	below := func(step any) []any { return append(slices.Clip(path), step) }
	set := func(value any) { all = append(all, edit{path: path, value: value}) }
	if len(path) > 0 {
		all = append(all, edit{path: path, absent: true})
		set(nil)
	}
	switch node := tree.(type) {
	case map[string]any:
		if len(path) > 0 {
			set(map[string]any{})
			set("object wanted")
		}
		for _, k := range slices.Sorted(maps.Keys(node)) {
			if identity[pathString(below(k))] {
				continue
			}
			all = append(all, edits(below(k), node[k])...)
		}
		for _, extra := range append([]pair{{"unknown", "field"}}, additions[key]...) {
			all = append(all, edit{path: below(extra.key), value: extra.value})
		}
	case []any:
		set([]any{})
		set("list wanted")
		for i := range node {
			all = append(all, edits(below(i), node[i])...)
		}
		if len(node) > 0 {
			set(append(slices.Clip(node), node[0])) // twice the same
			set(slices.Repeat(node[:1], 33))        // more than any limit but that of exit codes
			if _, isObject := node[0].(map[string]any); !isObject {
				set(slices.Repeat(node[:1], 256))
			}
		}
	case string:
		for _, s := range append(strs, values[key]...) {
			set(s)
		}
		if isQuantity(path) {
			for _, q := range quantities {
				set(q)
			}
		}
		set(7)
		set([]any{"string wanted"})
	case json.Number:
		for _, n := range append(numbers, values[key]...) {
			set(n)
		}
		if isQuantity(path) {
			for _, q := range quantities {
				set(q)
			}
		}
		set("number wanted")
	case bool:
		set(!node)
		set("true")
	}
	return all
}

// identity are fields that say which object this is and where it goes. They are given by
// the place that a manifest is in, or by the request.
var identity = map[string]bool{"apiVersion": true, "kind": true, "metadata.namespace": true, "spec.nodeName": true}

// lastKey returns the last name on a path.
func lastKey(path []any) string {
	for i := len(path) - 1; i >= 0; i-- {
		if key, ok := path[i].(string); ok {
			return key
		}
	}
	return ""
}

func isQuantity(path []any) bool {
	if lastKey(path) == "sizeLimit" || lastKey(path) == "divisor" {
		return true
	}
	return len(path) > 1 && slices.Contains([]any{"limits", "requests", "overhead"}, path[len(path)-2])
}

// transplants put fields of other pods, and of other containers, where the
// manifest has none or another one.
func transplants(good []corpusPod, m corpusPod) (all []edit) {
	spec, ok := m.pod["spec"].(map[string]any)
	if !ok {
		return nil
	}
	for _, other := range good {
		theirs := other.pod["spec"].(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(theirs)) {
			all = append(all, edit{path: []any{"spec", k}, value: theirs[k]})
		}
		for _, kind := range []string{"containers", "initContainers"} {
			for _, c := range list(theirs[kind]) {
				container := c.(map[string]any)
				for _, k := range slices.Sorted(maps.Keys(container)) {
					for _, mine := range []string{"containers", "initContainers"} {
						for i, c := range list(spec[mine]) {
							if _, ok := c.(map[string]any); ok && i < 2 {
								all = append(all, edit{path: []any{"spec", mine, i, k}, value: container[k]})
							}
						}
					}
				}
			}
		}
		if ephemeral := list(theirs["containers"]); len(ephemeral) > 0 {
			all = append(all, edit{path: []any{"spec", "ephemeralContainers"}, value: ephemeral[:1]})
		}
	}
	return all
}

func list(tree any) []any {
	l, _ := tree.([]any)
	return l
}
