package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogOptions(t *testing.T) {
	s, err := parsed(t, header)
	require.NoError(t, err)
	o, ok := s.LogOptions()
	assert.True(t, ok)
	assert.EqualValues(t, 10<<20, o.MaxSize)
	assert.Equal(t, 5, o.MaxFiles)
	assert.Equal(t, 1, o.MaxWorkers)
	assert.Equal(t, 10*time.Second, o.Interval)

	s, err = parsed(t, header+"containerLogMaxSize: 1Gi\ncontainerLogMaxFiles: 2\ncontainerLogMaxWorkers: "+
		"3\ncontainerLogMonitorInterval: 3s\n", "--container-log-max-files=7")
	require.NoError(t, err)
	o, ok = s.LogOptions()
	assert.True(t, ok)
	assert.EqualValues(t, 1<<30, o.MaxSize)
	assert.Equal(t, 7, o.MaxFiles)

	s, err = parsed(t, header, "--container-log-max-size=-1")
	require.NoError(t, err)
	_, ok = s.LogOptions()
	assert.False(t, ok, "no rotation")

	_, err = parsed(t, header+"containerLogMaxSize: big\ncontainerLogMaxFiles: 1\ncontainerLogMaxWorkers: "+
		"-1\ncontainerLogMonitorInterval: 2s\n")
	for _, field := range []string{"containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers",
		"containerLogMonitorInterval"} {
		assert.ErrorContains(t, err, field)
	}
}
