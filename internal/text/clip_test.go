package text_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/text"
)

func TestClip(t *testing.T) {
	assert.Equal(t, "four", text.Clip("four", 4))
	assert.Equal(t, "thr…", text.Clip("three", 3))
	assert.Equal(t, "a…", text.Clip("aéé", 2), "no half of a character")
}
