package lifecycle_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/lifecycle"
)

// placed is a component that declares its order.
type placed struct {
	all
	order lifecycle.Order
}

func (p placed) Order() lifecycle.Order { return p.order }

// before and after return components, which are compared by their names.
func before(name string, others ...string) lifecycle.Component {
	return placed{all{name: name}, lifecycle.Order{Before: others}}
}

func after(name string, others ...string) lifecycle.Component {
	return placed{all{name: name}, lifecycle.Order{After: others}}
}

func namesOf(components []lifecycle.Component) (out []string) {
	for _, c := range components {
		if c == nil {
			out = append(out, "nil")
			continue
		}
		out = append(out, c.Name())
	}
	return out
}

func TestSort(t *testing.T) {
	plain := func(name string) lifecycle.Component { return before(name) }
	for name, c := range map[string]struct {
		list []lifecycle.Component
		want []string
	}{
		"nothing": {nil, nil},
		"nothing is declared": {[]lifecycle.Component{plain("c"), all{name: "a"}, plain("b")},
			[]string{"c", "a", "b"}},
		"forward, to directly before the other": {[]lifecycle.Component{plain("a"), plain("b"), plain("c"),
			before("d", "b")}, []string{"a", "d", "b", "c"}},
		"what it comes after moves forward": {[]lifecycle.Component{plain("a"), after("b", "d"), plain("c"), plain("d")},
			[]string{"a", "d", "b", "c"}},
		"kept already": {[]lifecycle.Component{before("a", "c"), plain("b"), after("c", "a", "b")},
			[]string{"a", "b", "c"}},
		"others are not there": {[]lifecycle.Component{before("a", "x"), after("b", "y", ""), plain("c")},
			[]string{"a", "b", "c"}},
		"over one that is not there": {[]lifecycle.Component{after("a", "x"), plain("b"), before("c", "x")},
			[]string{"c", "a", "b"}},
		"a chain": {[]lifecycle.Component{after("a", "b"), after("b", "c"), after("c", "d"), plain("d")},
			[]string{"d", "c", "b", "a"}},
		"nil is an error of New": {[]lifecycle.Component{plain("a"), nil, before("c", "a")}, []string{"c", "a", "nil"}},
		"so are two of one name": {[]lifecycle.Component{plain("a"), plain("a"), before("c", "a")},
			[]string{"c", "a", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			given := namesOf(c.list)
			got, err := lifecycle.Sort(c.list...)
			require.NoError(t, err)
			assert.Equal(t, c.want, namesOf(got))
			assert.Equal(t, given, namesOf(c.list), "the list is left as it is")
		})
	}
}

func TestOrderThatIsACycle(t *testing.T) {
	for want, list := range map[string][]lifecycle.Component{
		`"a" comes before "b" (Before of "a"), "b" comes before "a" (After of "a")`: {all{name: "z"},
			placed{all{name: "a"}, lifecycle.Order{Before: []string{"b"}, After: []string{"b"}}}, all{name: "b"}},
		`"a" comes before "a" (Before of "a")`: {before("a", "a")},
		`"a" comes before "x" (Before of "a"), "x" comes before "b" (After of "b"), ` +
			`"b" comes before "a" (Before of "b")`: {before("a", "x"),
			placed{all{name: "b"}, lifecycle.Order{Before: []string{"a"}, After: []string{"x"}}}},
	} {
		got, err := lifecycle.Sort(list...)
		assert.EqualError(t, err, "lifecycle: components declare an order that is a cycle: "+want)
		assert.Equal(t, list, got)
		_, err = lifecycle.New(list...)
		assert.ErrorContains(t, err, want)
	}
}

// The order of the steps is that which is declared, also among the components of an agent.
func TestStepsInTheDeclaredOrder(t *testing.T) {
	var calls []string
	s, err := lifecycle.New(all{name: "volumes", calls: &calls}, all{name: "devices", calls: &calls},
		placed{all{name: "disks", calls: &calls}, lifecycle.Order{Before: []string{"volumes"}}})
	require.NoError(t, err)
	_, err = s.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: &v1.Pod{}})
	require.NoError(t, err)
	require.NoError(t, s.Ended(t.Context(), lifecycle.EndedRequest{}))
	assert.Equal(t, []string{"prepare disks", "prepare volumes", "prepare devices", "ended devices", "ended volumes",
		"ended disks"}, calls)
}

// Whatever is declared without a cycle is kept, also over names of no component; what is sorted stays as it is; and
// components whose order is declared have it wherever they are in the list.
func TestSortModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "names")
		names, orders := make([]string, n), make([]lifecycle.Order, n)
		for i := range names {
			names[i] = fmt.Sprint("c", i)
		}
		for range rapid.IntRange(0, 2*n).Draw(t, "declarations") {
			i, j := rapid.IntRange(0, n-1).Draw(t, "i"), rapid.IntRange(0, n-1).Draw(t, "j")
			switch before := rapid.Bool().Draw(t, "before"); { // a lower one is never after a higher one
			case i < j && before:
				orders[i].Before = append(orders[i].Before, names[j])
			case i < j:
				orders[j].After = append(orders[j].After, names[i])
			}
		}
		var list []lifecycle.Component
		for i, there := range rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "there") {
			if there {
				list = append(list, placed{all{name: names[i]}, orders[i]})
			}
		}
		at := func(name string) int { return slices.Index(names, name) }
		later := make([][]bool, n) // what is declared by those that are there, and what follows from it
		for i := range n {
			later[i] = make([]bool, n)
		}
		for _, c := range list {
			order := c.(lifecycle.Ordered).Order()
			for _, name := range order.Before {
				later[at(c.Name())][at(name)] = true
			}
			for _, name := range order.After {
				later[at(name)][at(c.Name())] = true
			}
		}
		for k := range n {
			for i := range n {
				for j := range n {
					later[i][j] = later[i][j] || later[i][k] && later[k][j]
				}
			}
		}
		shuffled := rapid.Permutation(list).Draw(t, "list")
		got, err := lifecycle.Sort(shuffled...)
		require.NoError(t, err)
		require.ElementsMatch(t, namesOf(list), namesOf(got))
		for i, a := range got {
			for _, b := range got[i+1:] {
				require.False(t, later[at(b.Name())][at(a.Name())], "%s after %s: %v", b.Name(), a.Name(), namesOf(got))
			}
		}
		again, err := lifecycle.Sort(got...)
		require.NoError(t, err)
		require.Equal(t, namesOf(got), namesOf(again))
		// Unrelated components keep the order of the list, unless one of them moves forward.
		moves := func(c lifecycle.Component) bool { return slices.Contains(later[at(c.Name())], true) }
		stay := func(list []lifecycle.Component) []string {
			return namesOf(slices.DeleteFunc(slices.Clone(list), moves))
		}
		require.Equal(t, stay(shuffled), stay(got))
	})
}

// The sorted order does not depend on the list where all of it is declared.
func TestShuffledComponents(t *testing.T) {
	list := []lifecycle.Component{before("a", "b"), before("b", "x"), after("c", "x"), after("d", "c")}
	for range 100 {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		got, err := lifecycle.Sort(list...)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c", "d"}, namesOf(got))
	}
}
