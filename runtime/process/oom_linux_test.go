package process

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"
)

// A container has the score of its pod's class, and never the protection of the agent.
func TestOOMScoreOfAContainer(t *testing.T) {
	for _, tc := range []struct {
		adj, own int
		root     bool
		set      *int
		lower    bool
	}{
		{1000, 0, false, ptr.To(1000), false},
		{1000, -999, true, ptr.To(1000), false},
		{-997, -999, true, ptr.To(-997), false},
		{-997, 0, true, ptr.To(-997), false},
		{-997, 0, false, nil, true},
		{3, 200, false, nil, true},
		{0, 0, true, nil, false},
		{0, 200, false, nil, false},
		{0, -999, true, ptr.To(0), false},
	} {
		set, lower := oomScoreOf(tc.adj, tc.own, tc.root)
		assert.Equal(t, tc.set, set, tc)
		assert.Equal(t, tc.lower, lower, tc)
	}
}
