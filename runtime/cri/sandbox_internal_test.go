package cri

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Only the event of a sandbox that was removed without a stop shows that a removal stops it.
func TestWhatIsObservedOfARemoval(t *testing.T) {
	var o removal
	assert.True(t, o.suffices("refused"))
	assert.False(t, o.suffices("second"))
	o.notObserved("refused") // it is stopped now, and that has an event, too
	o.stopped("refused")
	assert.True(t, o.suffices("removed"), "another one is tried")
	assert.False(t, o.suffices("second"))
	o.stopped("other")
	assert.False(t, o.suffices("second"))
	o.stopped("removed")
	assert.True(t, o.suffices("second"))
}
