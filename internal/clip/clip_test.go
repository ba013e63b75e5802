package clip_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/clip"
)

func TestText(t *testing.T) {
	assert.Equal(t, "four", clip.Text("four", 4))
	assert.Equal(t, "thr…", clip.Text("three", 3))
	assert.Equal(t, "a…", clip.Text("aéé", 2), "no half of a character")
}
