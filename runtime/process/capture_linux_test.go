package process

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A command writes without an end.
func TestCapture(t *testing.T) {
	var c capture
	block := bytes.Repeat([]byte("x"), 1<<20-1)
	for range 20 {
		n, err := c.Write(block)
		require.NoError(t, err)
		assert.Equal(t, len(block), n)
	}
	assert.Len(t, c.data, 1<<20)
	assert.Less(t, cap(c.data), 3<<20)
}
