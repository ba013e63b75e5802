package logs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

func TestExcess(t *testing.T) {
	all := []crilog.Rotated{{Name: "1", Compressed: true}, {Name: "2"}, {Name: "3"}, {Name: "4"}}
	assert.Equal(t, all[:1], excess(all, 4))
	assert.Empty(t, excess(all, 5))
	assert.Equal(t, all[:3], excess(all, 2), "the newest one stays")
	assert.Empty(t, excess(nil, 2))
	assert.Equal(t, all[1:3], uncompressed(all))
	assert.Empty(t, uncompressed(nil))
}

func TestCheckAfter(t *testing.T) {
	assert.Equal(t, maxCheck, checkAfter(0, 1<<40))
	assert.Equal(t, 100*time.Millisecond, checkAfter(0, 10<<20))
	assert.Equal(t, 10*time.Millisecond, checkAfter(9<<20, 10<<20))
	assert.Equal(t, minCheck, checkAfter(10<<20, 10<<20))
	assert.Equal(t, minCheck, checkAfter(11<<20, 10<<20))
}
