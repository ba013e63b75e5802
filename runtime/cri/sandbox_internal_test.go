package cri

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Only the event of a sandbox that was removed without a stop shows that a removal stops it.
func TestWhatIsObservedOfARemoval(t *testing.T) {
	var o removal
	assert.True(t, o.mayRemoveRunning("refused"))
	assert.False(t, o.mayRemoveRunning("second"))
	o.forget("refused") // it is stopped now, and that has an event, too
	o.stopped("refused")
	assert.True(t, o.mayRemoveRunning("removed"), "another one is tried")
	assert.False(t, o.mayRemoveRunning("second"))
	o.stopped("other")
	assert.False(t, o.mayRemoveRunning("second"))
	o.stopped("removed")
	assert.True(t, o.mayRemoveRunning("second"))
}
