package pleg

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

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

func TestHintsWithoutEnd(t *testing.T) {
	var m mailbox
	for i := range 3 * maxHinted {
		m.hint(runtime.Hint{Pod: runtime.PodRef{UID: types.UID(fmt.Sprint(i))}, ID: "1"}, runtime.Mark(i))
	}
	assert.Len(t, m.mail.hints, maxHinted)
	assert.Empty(t, m.mail.ids)
	assert.True(t, m.mail.unmatched, "a relist finds the changes of the others")
}
