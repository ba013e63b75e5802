package users

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func ctxOf(t require.TestingT) context.Context {
	if t, ok := t.(interface{ Context() context.Context }); ok {
		return t.Context()
	}
	panic("no context")
}

// model is a node whose sandboxes are known.
type model struct {
	*node
	m *Manager
	// boxes are the sandboxes that run; their ranges are the truth.
	boxes map[types.UID]Range
	// pods are those that the agent knows.
	pods []types.UID
	// foreign are ranges of processes of others.
	foreign  []Range
	reported bool // the runtime reports the ranges of sandboxes
	touched  bool // somebody has touched records
	started  int
}

func (s *model) observed(uid types.UID) *runtime.PodStatus {
	own, ok := s.boxes[uid]
	switch {
	case !ok:
		return &runtime.PodStatus{}
	case s.reported:
		return runs(own)
	default:
		return runs(Range{})
	}
}

// restart is an agent that starts: it knows the pods, the records and what runs.
func (s *model) restart() {
	s.opts.InUse = func() ([]Range, error) {
		return slices.AppendSeq(slices.Clone(s.foreign), maps.Values(s.boxes)), nil
	}
	s.m = s.manager()
	s.m.write = func(dir string, r Range) error {
		return safefile.Write(filepath.Join(dir, recordName), FormatRecord(r))
	}
}

func (s *model) alone(own Range, uid types.UID) {
	for other, o := range s.boxes {
		if other != uid {
			require.Falsef(s.t, o.overlaps(own), "%s of %s overlaps with %s of %s", own, uid, o, other)
		}
	}
	for _, f := range s.foreign {
		require.Falsef(s.t, f.overlaps(own), "%s of %s overlaps with %s of others", own, uid, f)
	}
}

// sync prepares a pod, and makes its sandbox if it has none.
func (s *model) sync(t *rapid.T, uid types.UID) {
	own, err := s.prepare(s.m, uid, s.observed(uid))
	box, hasBox := s.boxes[uid]
	switch {
	case err != nil && s.reported && hasBox:
		require.NoError(t, err, "the sandbox tells the range")
	case err != nil && !s.touched:
		require.ErrorIs(t, err, ErrExhausted)
		require.False(t, hasBox)
	case err != nil:
	case hasBox && (s.reported || !s.touched):
		require.Equal(t, box, own, "a pod that runs keeps its range")
	case hasBox: // a lost record, unreported: the runtime refuses a container with another range
	default:
		s.alone(own, uid)
		s.boxes[uid] = own
	}
}

// Whatever happens to pods, agents and records: no two sandboxes have overlapping ranges, and none has that of a
// process that ran before the agent.
func TestModel(t *testing.T) {
	dirs := t.TempDir()
	runs := 0
	pool := func(context.Context) (Range, error) { return Range{Unit, 5 * Unit}, nil }
	rapid.Check(t, func(t *rapid.T) {
		runs++
		s := &model{
			node:  &node{t: t, podsDir: filepath.Join(dirs, fmt.Sprint(runs)), opts: Options{Pool: pool}},
			boxes: map[types.UID]Range{}, reported: rapid.Bool().Draw(t, "reported"),
		}
		require.NoError(t, os.Mkdir(s.podsDir, 0o700))
		defer func() { _ = os.RemoveAll(s.podsDir) }()
		s.restart()
		some := func(t *rapid.T) types.UID {
			if len(s.pods) == 0 {
				t.Skip("no pod")
			}
			return rapid.SampledFrom(s.pods).Draw(t, "pod")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				s.t = t
				for uid, own := range s.boxes {
					s.alone(own, uid)
				}
			},
			"start": func(t *rapid.T) {
				s.started++
				uid := types.UID(fmt.Sprintf("%c%d", 'a'+rapid.IntRange(0, 25).Draw(t, "order"), s.started))
				s.pods = append(s.pods, uid)
				s.sync(t, uid)
			},
			"sync": func(t *rapid.T) { s.sync(t, some(t)) },
			"lose the sandbox": func(t *rapid.T) {
				uid := some(t)
				delete(s.boxes, uid)
				s.sync(t, uid)
			},
			"end": func(t *rapid.T) {
				uid := some(t)
				delete(s.boxes, uid)
				if rapid.Bool().Draw(t, "ended") {
					require.NoError(t, s.m.Ended(t.Context(), lifecycle.EndedRequest{Pod: podOf(uid), Dir: s.dir(uid)}))
				}
				if rapid.Bool().Draw(t, "restart") {
					s.restart()
				}
				require.NoError(t,
					s.m.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.PodRef{UID: uid}, Dir: s.dir(uid)}))
				require.NoError(t, os.RemoveAll(s.dir(uid)))
				s.pods = slices.DeleteFunc(s.pods, func(p types.UID) bool { return p == uid })
			},
			"restart": func(t *rapid.T) { s.restart() },
			"lose a record": func(t *rapid.T) {
				s.touched = true
				_ = os.Remove(filepath.Join(s.dir(some(t)), "userns"))
				s.restart()
			},
			"damage a record": func(t *rapid.T) {
				s.touched = true
				s.record(some(t), damaged)
				s.restart()
			},
			"exchange a record": func(t *rapid.T) {
				s.touched = true
				own := Range{uint32(rapid.IntRange(1, 14).Draw(t, "half")) * Unit / 2,
					uint32(rapid.IntRange(1, 4).Draw(t, "length")) * Unit / 2}
				s.record(some(t), string(FormatRecord(own)))
				s.restart()
			},
			"others": func(t *rapid.T) {
				own := Range{uint32(rapid.IntRange(1, 14).Draw(t, "half")) * Unit / 2, Unit / 2}
				for _, o := range s.boxes {
					if o.overlaps(own) {
						t.Skip("they begin with what is free")
					}
				}
				for _, uid := range s.pods { // also those without a sandbox
					if r, err := readRecord(s.dir(uid)); err == nil && r.overlaps(own) {
						t.Skip("they begin with what is free")
					}
				}
				s.foreign = append(s.foreign, own)
				s.restart()
			},
		})
	})
}
