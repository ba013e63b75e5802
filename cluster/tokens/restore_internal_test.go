package tokens

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
)

// states has the state of an earlier agent.
type states []kept

func (s states) KeepState(string, any) {}

func (s states) LoadState(_ string, into any) bool {
	raw, err := json.Marshal(s)
	return err == nil && json.Unmarshal(raw, into) == nil
}

// Restored tokens age with the monotonic clock: one is refreshed in time although the wall clock is
// set back after the restart.
func TestRestoredTokensAgeWithoutTheWallClock(t *testing.T) {
	token := &authenticationv1.TokenRequest{}
	token.Spec.ExpirationSeconds, token.Status.Token = new(int64(3600)), "secret"
	for _, age := range []time.Duration{-time.Hour, 0, 10 * time.Minute, 1000 * time.Hour} {
		tokens := &Tokens{entries: map[key]*entry{}}
		tokens.opts.Checkpoint = states{{"default", "robot", token, token, time.Now().Add(-age)}}
		tokens.restore()
		require.Len(t, tokens.entries, 1)
		for _, e := range tokens.entries {
			assert.Contains(t, e.received.String(), " m=", "a time has a monotonic reading")
			assert.Contains(t, e.refreshAt.String(), " m=")
			assert.InDelta(t, age, time.Since(e.received), float64(time.Minute))
		}
	}
}

// calling is a checkpoint that calls the tokens.
type calling struct {
	states
	call func()
}

func (c calling) KeepState(string, any) { c.call() }

// The checkpoint is called without a lock.
func TestTheCheckpointCallsTheTokens(t *testing.T) {
	tokens := &Tokens{entries: map[key]*entry{}}
	calls := 0
	tokens.opts.Checkpoint = calling{call: func() { tokens.Update(nil, []*v1.Pod{{}}); calls++ }}
	require.NoError(t, tokens.save())
	assert.Equal(t, 1, calls)
}
