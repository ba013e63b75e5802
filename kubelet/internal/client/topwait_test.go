package client

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A rate takes two readings, some seconds apart. The command says so while it waits.
func TestTopSaysThatItMeasures(t *testing.T) {
	var reads atomic.Int32
	root := serving(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rate := ""
		if reads.Add(1) > 1 {
			rate = `"usageNanoCores": 5000000,`
		}
		_, _ = w.Write([]byte(`{"pods": [{"podRef": {"name": "web", "namespace": "default"}, "cpu": {` + rate +
			`"usageCoreNanoSeconds": 1}}]}`))
	}))
	top := func() (string, string) {
		var out, errOut strings.Builder
		require.NoError(t, runCommand(t.Context(), []string{"top", "--root-dir", root}, &out, &errOut))
		return out.String(), errOut.String()
	}
	out, said := top()
	assert.Equal(t, "Measuring the usage of CPU, which takes some seconds.\n", said)
	assert.Contains(t, out, "5m")
	_, said = top()
	assert.Empty(t, said, "the rate is known")
}

// The embedded runtime has no images, only names.
func TestAnImageWithoutSize(t *testing.T) {
	assert.Equal(t, "-", sizeOf(&gc.Image{}))
	assert.Equal(t, "1 B", sizeOf(&gc.Image{Image: runtime.Image{Size: 1}}))
}
