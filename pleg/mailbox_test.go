package pleg

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestHintsWithoutAPodDoNotPileUp(t *testing.T) {
	var m mailbox
	for i := range 10 * maxIDs {
		m.hint(runtime.Hint{ID: fmt.Sprint(i)}, runtime.Mark(i))
	}
	assert.Len(t, m.mail.ids, maxIDs)
	assert.True(t, m.mail.unmatched)
}
