package csi_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
)

var errKilled = errors.New("the agent was killed")

// killer ends an agent before one of its steps, or while it waits for an answer: no step happens from then on.
type killer struct {
	left int // 0: never
	dead bool
	last string
}

func (k *killer) step(step string) error {
	if k.dead {
		return errKilled
	}
	if k.left > 0 {
		if k.left--; k.left == 0 {
			k.dead, k.last = true, step
			return errKilled
		}
	}
	return nil
}

// answered counts the answer of a driver as a step.
func (k *killer) answered(method string, _, _ proto.Message, _ error) {
	_ = k.step("answer of " + method)
}

// An agent is killed before each step in the lives of two pods. The next one completes what is there, or removes it,
// with the same calls as if nothing had happened.
func TestKilledAtEachStep(t *testing.T) {
	forEachWay(t, func(t *testing.T, opts csidriver.Options) {
		for _, complete := range []bool{false, true} {
			k := &killer{}
			opts.After = k.answered
			r := labelled(t, opts) // the driver refuses another label in a publication than in the stage
			r.add("data")
			r.add("raw", block)
			r.add("alone", mode(v1.ReadWriteOncePod))
			web, db := r.podOf("web", levelOne, "data", "raw", "alone"), r.podOf("db", levelOne, "data", "raw")
			r.use(web, r.inline("scratch"))
			for n := 1; ; n++ {
				*k = killer{left: n}
				r.plugin.Before(k.step)
				_, err := r.setUp(web)
				if err == nil {
					_, err = r.setUp(db)
				}
				if err == nil {
					err = r.remove(db)
				}
				if err == nil {
					err = r.remove(web)
				}
				killed := k.dead
				k.left, k.dead = 0, false
				if !killed {
					require.NoError(t, err)
					require.Greater(t, n, 40)
					t.Logf("%d steps", n-1)
					break
				}
				r.restart()
				if complete {
					r.mustSetUp(db)
					r.mustSetUp(web)
				}
				r.mustRemove(web)
				r.mustRemove(db)
				r.isClean()
				if t.Failed() {
					t.Fatalf("killed before step %d: %s", n, k.last)
				}
			}
			r.isClean()
		}
	})
}
