package dra

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// The file was written by k8s.io/kubernetes v1.36.3, and would be by v1.37.2, pkg/kubelet/cm/dra/state.
func TestHealthOfKubelet(t *testing.T) {
	want, err := os.ReadFile("testdata/dra_health_state")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, healthName), want, 0o600))
	m := newManager(t, dir, &apiServer{}, Options{})
	require.NoError(t, m.health.Load())
	got, err := m.healthContent()
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))

	require.NoError(t, os.WriteFile(filepath.Join(dir, healthName), []byte("{"), 0o600))
	require.NoError(t, newManager(t, dir, &apiServer{}, Options{}).health.Load(), "damaged")
}

// After a crash of the agent, a report holds until it expires, and as long as the driver says nothing else.
func TestHealthAfterARestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, dir, &apiServer{}, Options{})
		m.Add("d", newDriverOf("d")).SetHealth([]DeviceHealth{
			{Pool: "pool", Name: "long", Health: v1.ResourceHealthStatusHealthy, Timeout: time.Hour}, {Pool: "pool", Name: "short", Health: v1.ResourceHealthStatusUnhealthy, Message: "hot"},
		})
		require.NoError(t, m.health.Save())

		m = newManager(t, dir, &apiServer{}, Options{})
		require.NoError(t, m.load())
		health := func(device string) v1.ResourceHealthStatus {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.healthOf("d", Device{Pool: "pool", Name: device}, time.Now()).Health
		}
		assert.Equal(t, v1.ResourceHealthStatusUnhealthy, health("short"))
		time.Sleep(time.Minute)
		assert.Equal(t, 59*time.Minute, m.expire(time.Now()))
		assert.Equal(t, v1.ResourceHealthStatusUnknown, health("short"))
		e := m.Add("d", newDriverOf("d"))
		e.SetHealth([]DeviceHealth{{Pool: "pool", Name: "short", Health: v1.ResourceHealthStatusHealthy}})
		assert.Equal(t, v1.ResourceHealthStatusHealthy, health("long"))
		e.ClearHealth()
		assert.Equal(t, v1.ResourceHealthStatusUnknown, health("long"), "the stream has ended")
		require.NoError(t, m.health.Save())
		data, err := os.ReadFile(m.path(healthName))
		require.NoError(t, err)
		assert.Equal(t, "{}", string(data))
	})
}
