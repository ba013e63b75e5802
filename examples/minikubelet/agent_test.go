package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
)

// A hardened configuration reaches the runtime.
func TestRuntimeOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, header+"seccompDefault: true\ncpuCFSQuota: false\ncpuCFSQuotaPeriod: 5ms\nsingleProcessOOMKill: true\n")
	s, err := config.Parse([]string{"--config", file, "--container-runtime-endpoint=/run/cri.sock"})
	require.NoError(t, err)
	opts := runtimeOptions(s, nil, logr.Discard())
	assert.True(t, opts.SeccompDefault)
	assert.True(t, opts.NoCPUQuota)
	assert.Equal(t, 5*time.Millisecond, opts.CPUPeriod)
	assert.True(t, opts.KillProcessesSingly)

	s, err = config.Parse(nil)
	require.NoError(t, err)
	opts = runtimeOptions(s, nil, logr.Discard())
	assert.False(t, opts.SeccompDefault || opts.NoCPUQuota || opts.KillProcessesSingly)
	assert.Equal(t, 100*time.Millisecond, opts.CPUPeriod)
}
