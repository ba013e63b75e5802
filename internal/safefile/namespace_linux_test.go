package safefile

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIsWhole(t *testing.T) {
	assert.True(t, isWhole("         0          0 4294967295\n"))
	for _, ids := range []string{
		"", "         0       1000          1\n", "         0     100000      65536\n",
		"         0       1000          1\n         1     100000      65536\n",
	} {
		assert.False(t, isWhole(ids), ids)
	}
}
