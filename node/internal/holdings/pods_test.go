package holdings

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// Whatever pods of a file are admitted and end, before the file is read and after it: a suspension ends with the last
// pod for which the file does not fit, and not before; nothing is left of a pod that was released.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bad := errors.New("it does not fit")
		var p pods
		// inFile are the pods of the file that were not released, and unfit those of them for which it does not fit.
		inFile, unfit := map[types.UID]bool{}, map[types.UID]bool{}
		uid := func(t *rapid.T) types.UID { return types.UID(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "pod"))) }
		ended := map[types.UID]bool{}
		for _, uid := range rapid.SliceOfN(rapid.IntRange(0, 5), 0, 3).Draw(t, "ended before") {
			uid := types.UID(fmt.Sprint(uid))
			require.False(t, p.release(uid))
			ended[uid] = true
		}
		suspends := rapid.Bool().Draw(t, "suspends")
		known := rapid.Bool().Draw(t, "known")
		var of []types.UID
		for i := range 6 {
			uid := types.UID(fmt.Sprint(i))
			switch what := rapid.IntRange(0, 2).Draw(t, "pod in the file"); {
			case what == 0 || !known:
			case what == 1 && suspends:
				of = append(of, uid)
				inFile[uid], unfit[uid] = !ended[uid], !ended[uid]
			default:
				require.Equal(t, !ended[uid], p.restore(uid))
				inFile[uid] = !ended[uid]
			}
		}
		if suspends && (!known || len(of) > 0) {
			p.suspend(bad, of)
		} else {
			suspends = false
		}
		p.read, p.ended = true, nil
		forGood := suspends && len(of) == 0
		left := func() (n int) {
			for _, is := range unfit {
				if is {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				require.Equal(t, suspends && (forGood || left() > 0), p.suspended != nil)
				for uid := range p.earlier {
					require.True(t, inFile[uid])
				}
			},
			"admit": func(t *rapid.T) {
				uid, running := uid(t), rapid.Bool().Draw(t, "running")
				goesOn, err := p.admit(uid, running)
				switch {
				case p.suspended == nil:
					require.False(t, goesOn)
					require.NoError(t, err)
				case running || inFile[uid]:
					require.True(t, goesOn)
					require.NoError(t, err)
				default:
					require.Equal(t, err == nil, goesOn, "it was admitted before, or not")
					require.Equal(t, p.goOn.has(uid), goesOn)
				}
				require.False(t, err == nil && p.earlier.has(uid))
			},
			"end": func(t *rapid.T) {
				uid := uid(t)
				was := p.suspended
				resumed := p.release(uid)
				inFile[uid], unfit[uid] = false, false
				require.Equal(t, was != nil && p.suspended == nil, resumed)
				require.False(t, p.known(uid))
				require.False(t, slices.Contains(p.earlier.list(), uid))
			},
		})
	})
}
