package pleg

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestStrayHintsDoNotGrow(t *testing.T) {
	var n news
	for i := range 10 * maxStrays {
		n.hint(runtime.Hint{ID: fmt.Sprint(i)}, runtime.Mark(i))
	}
	assert.Len(t, n.strays, maxStrays)
	assert.True(t, n.lost)
}
