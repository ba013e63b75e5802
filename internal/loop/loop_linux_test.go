package loop

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func needLoop(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat(control); err != nil {
		t.Skip("needs loop devices")
	}
}

// A device that is held stays attached when its last other user has gone, and ends when it is released.
func TestHold(t *testing.T) {
	needLoop(t)
	ctx, dir := t.Context(), t.TempDir()
	image, held := filepath.Join(dir, "image"), filepath.Join(dir, "devices", "held")
	require.NoError(t, os.WriteFile(image, make([]byte, 1<<20), 0o600))
	device, err := Attach(image)
	require.NoError(t, err)
	attached := func() []string {
		found, err := Of(image)
		require.NoError(t, err)
		return found
	}
	assert.Equal(t, []string{device}, attached())
	require.NoError(t, Hold(ctx, device, held))
	require.NoError(t, Hold(ctx, device, held), "again")
	holders, err := Of(held)
	require.NoError(t, err)
	assert.Len(t, holders, 1)
	require.NoError(t, Detach(device))
	assert.Equal(t, []string{device}, attached(), "it is held")
	require.NoError(t, Release(ctx, held))
	require.NoError(t, Release(ctx, held), "again")
	assert.NoFileExists(t, held)
	assert.Empty(t, attached())

	// Only the file is left, as after a reboot, and the device has another number.
	require.NoError(t, os.WriteFile(held, nil, 0o600))
	device, err = Attach(image)
	require.NoError(t, err)
	require.NoError(t, Hold(ctx, device, held))
	require.NoError(t, unix.Mount(device, held, "", unix.MS_BIND, ""), "mounted twice, as by a kubelet")
	require.NoError(t, Release(ctx, held))
	require.NoError(t, Detach(device))
	assert.Empty(t, attached())
}

// A device that another process has open, as udev does for a moment, is released when that has closed it.
func TestReleaseOfOpenDevice(t *testing.T) {
	needLoop(t)
	ctx, dir := t.Context(), t.TempDir()
	image, held := filepath.Join(dir, "image"), filepath.Join(dir, "held")
	require.NoError(t, os.WriteFile(image, make([]byte, 1<<20), 0o600))
	device, err := Attach(image)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, Detach(device)) })
	require.NoError(t, Hold(ctx, device, held))
	holders, err := Of(held)
	require.NoError(t, err)
	require.Len(t, holders, 1)
	opened, err := os.Open(holders[0])
	require.NoError(t, err)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, Release(canceled, held), unix.EBUSY)

	released := make(chan error, 1)
	go func() { released <- Release(ctx, held) }()
	require.NoError(t, opened.Close())
	require.NoError(t, <-released)
	assert.NoFileExists(t, held)
	holders, err = Of(held)
	require.NoError(t, err)
	assert.Empty(t, holders)
}

// What is no device is not held.
func TestHoldFile(t *testing.T) {
	dir := t.TempDir()
	file, held := filepath.Join(dir, "file"), filepath.Join(dir, "held")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, Hold(t.Context(), file, held))
	assert.NoFileExists(t, held)
	require.NoError(t, Release(t.Context(), held))
	require.ErrorIs(t, Hold(t.Context(), filepath.Join(dir, "gone"), held), os.ErrNotExist)
}
