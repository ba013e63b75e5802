package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// victimEnv has the root directory and the step of a process that is killed.
const victimEnv = "VOLUME_TEST_VICTIM"

// TestVictim is the process that is killed. It kills itself before a step, or is killed by
// its parent if the step is 0.
func TestVictim(t *testing.T) {
	root, step, ok := strings.Cut(os.Getenv(victimEnv), ":")
	if !ok {
		t.Skip("it is run by TestKilled")
	}
	left, err := strconv.Atoi(step)
	require.NoError(t, err)
	before := func(string) error {
		if left--; left == 0 {
			return errors.Join(unix.Kill(os.Getpid(), unix.SIGKILL), errors.New("not killed"))
		}
		return nil
	}
	fmt.Println("begin")
	for {
		require.NoError(t, newVictim(root, "victim", true).live(t.Context(), before))
		if left > 0 || step != "0" {
			return
		}
	}
}

// runVictim runs TestVictim, and kills it after some time if the step is 0. It reports whether
// the process was killed.
func runVictim(t *testing.T, root string, step int, after time.Duration) (killed bool) {
	t.Helper()
	// The child ends by itself if this process dies.
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVictim$", "-test.count=1", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d", victimEnv, root, step))
	var out bytes.Buffer
	cmd.Stderr = &out
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	first := make([]byte, 5)
	_, err = stdout.Read(first)
	require.NoError(t, err)
	require.Equal(t, "begin", string(first))
	if step == 0 {
		time.Sleep(after)
		require.NoError(t, cmd.Process.Kill())
	}
	rest, _ := io.ReadAll(stdout)
	err = cmd.Wait()
	if err == nil {
		return false
	}
	status, ok := cmd.ProcessState.Sys().(interface{ Signaled() bool })
	require.True(t, ok && status.Signaled(), "%v: %s%s", err, rest, out.String())
	return true
}

// A process that sets volumes up and takes them down is killed at each step, and at any
// time. The next one finds from disk and mounts what is there, completes or removes it, and
// touches nothing of another pod.
func TestKilled(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	root := testenv.MemoryDir(t)
	v, other := newVictim(root, "victim", true), newVictim(root, "other", true)
	v.plant(t)
	other.plant(t)
	neighbour, err := other.agent("mine", nil)
	require.NoError(t, err)
	ready, err := other.setUp(t.Context(), neighbour)
	require.NoError(t, err)
	for name := range ready {
		require.NoError(t, other.write(ready, name))
	}
	t.Cleanup(func() {
		assert.NoError(t, neighbour.Remove(context.WithoutCancel(t.Context()), kruntime.RefOf(other.pod), other.dir))
		assert.NoError(t, unmountBelow(root))
	})
	volumes, disk := listed(t, other.dir), listed(t, other.disk)
	mounts, err := mountsBelow(root)
	require.NoError(t, err)

	recovers := func(setUp, anyTime bool) {
		t.Helper()
		// Whatever the process was doing, readers see all files of one version. A process that was killed at
		// any time may have been removing the files of the pod, which has no readers then.
		for name, plugin := range map[string]string{"config": ConfigMap{}.Name(), "secret": Secret{}.Name()} {
			data := filepath.Join(PlaceOf(v.dir, plugin, name).Dir, dataLink)
			if a, err := os.ReadFile(filepath.Join(data, "a")); err == nil {
				b, err := os.ReadFile(filepath.Join(data, "b"))
				if anyTime && errors.Is(err, os.ErrNotExist) {
					continue
				}
				if assert.NoError(t, err) {
					assert.Equal(t, string(a), string(b))
				}
			}
		}
		m, err := v.agent("3", nil)
		require.NoError(t, err)
		if setUp {
			ready, err := v.setUp(t.Context(), m)
			require.NoError(t, err)
			v.isReady(t, ready, "3", false)
		}
		require.NoError(t, m.Remove(t.Context(), kruntime.PodRef{UID: v.pod.UID}, v.dir))
		v.isGone(t)
		now, err := mountsBelow(root)
		require.NoError(t, err)
		assert.Equal(t, mounts, now)
		assert.Equal(t, disk, listed(t, other.disk))
		assert.Equal(t, volumes, listed(t, other.dir))
	}
	steps := 0
	for steps = 1; runVictim(t, root, steps, 0); steps++ {
		recovers(steps%2 == 0, false)
		if t.Failed() {
			t.Fatalf("killed at step %d", steps)
		}
	}
	assert.Greater(t, steps, 80)
	t.Logf("%d steps", steps-1)
	for i := range 20 {
		after := time.Duration(rand.Int64N(int64(30 * time.Millisecond)))
		runVictim(t, root, 0, after)
		recovers(i%2 == 0, true)
		if t.Failed() {
			t.Fatalf("killed after %v", after)
		}
	}
}
