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
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// victimEnv has the root directory and the step of a process that is killed.
const victimEnv = "VOLUME_TEST_VICTIM"

// versioned has each object, with files that have the version.
type versioned string

func (o versioned) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{"a": string(o), "b": string(o)}}, nil
}

func (o versioned) Secret(context.Context, string, string) (*v1.Secret, error) {
	return &v1.Secret{Data: map[string][]byte{"a": []byte(o), "b": []byte(o)}}, nil
}

// victimPod has a volume of each type that leaves something on disk or mounted.
func victimPod(name string) *v1.Pod {
	volume := func(name string, src v1.VolumeSource) v1.Volume { return v1.Volume{Name: name, VolumeSource: src} }
	return testpod.New(name, testpod.UID(types.UID(name)), testpod.Containers("main"), testpod.Volumes(
		volume("config", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}),
		volume("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}),
		volume("projected", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{Secret: &v1.SecretProjection{}}}}}),
		volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
	))
}

// live sets the pod up with two versions of its objects, mounts sub-paths, and removes it.
func live(ctx context.Context, dir string, pod *v1.Pod, before func(string) error) error {
	for _, version := range []versioned{"1", "2"} {
		m, err := New(Options{Sources: Sources{Objects: version, before: before}})
		if err != nil {
			return err
		}
		ready, err := m.SetUp(ctx, pod, dir)
		if err != nil {
			return err
		}
		for i, name := range []string{"disk", "memory", "config"} {
			_ = before("sub-path of " + name)
			if _, err := m.SubPath(ctx, kruntime.SubPath{
				Pod: kruntime.RefOf(pod), Container: "main", Index: i, VolumeName: name, Volume: ready[name], Path: "a", Dir: dir,
			}); err != nil {
				return err
			}
		}
	}
	m, err := New(Options{Sources: Sources{Objects: versioned("2"), before: before}})
	if err != nil {
		return err
	}
	return m.Remove(ctx, kruntime.PodRef{UID: pod.UID}, dir)
}

// TestVictim is the process that is killed. It kills itself before a step, or is killed by
// its parent if the step is 0.
func TestVictim(t *testing.T) {
	dir, step, ok := strings.Cut(os.Getenv(victimEnv), ":")
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
		require.NoError(t, live(t.Context(), dir, victimPod("victim"), before))
		if left > 0 || step != "0" {
			return
		}
	}
}

// victim runs TestVictim, and kills it after some time if the step is 0. It reports whether
// the process was killed.
func victim(t *testing.T, dir string, step int, after time.Duration) (killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVictim$", "-test.count=1")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d", victimEnv, dir, step))
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
	pods := t.TempDir()
	dir, other := filepath.Join(pods, "victim"), filepath.Join(pods, "other")
	neighbour, err := New(Options{Sources: Sources{Objects: versioned("mine")}})
	require.NoError(t, err)
	ready, err := neighbour.SetUp(t.Context(), victimPod("other"), other)
	require.NoError(t, err)
	for _, name := range []string{"disk", "memory"} {
		require.NoError(t, os.WriteFile(filepath.Join(ready[name].HostPath, "f"), []byte("mine"), 0o600))
	}
	t.Cleanup(func() {
		assert.NoError(t, neighbour.Remove(context.WithoutCancel(t.Context()), kruntime.PodRef{UID: "other"}, other))
		assert.NoError(t, unmountBelow(pods))
	})
	mountsOfOther, err := mountsBelow(other)
	require.NoError(t, err)

	recovers := func(setUp, anyTime bool) {
		t.Helper()
		// Whatever the process was doing, readers see all files of one version. A process that was killed at
		// any time may have been removing the files of the pod, which has no readers then.
		for _, plugin := range []string{"kubernetes.io/configmap", "kubernetes.io/secret"} {
			data := filepath.Join(PlaceOf(dir, plugin, map[string]string{"kubernetes.io/configmap": "config", "kubernetes.io/secret": "secret"}[plugin]).Dir, dataLink)
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
		m, err := New(Options{Sources: Sources{Objects: versioned("3")}})
		require.NoError(t, err)
		if setUp {
			ready, err := m.SetUp(t.Context(), victimPod("victim"), dir)
			require.NoError(t, err)
			for _, name := range []string{"config", "secret", "projected"} {
				assert.Equal(t, map[string]string{"a": "3", "b": "3"}, visible(t, ready[name].HostPath))
				tidy(t, ready[name].HostPath)
			}
			for _, name := range []string{"secret", "projected", "memory"} {
				mounted, err := isMountPoint(ready[name].HostPath)
				require.NoError(t, err)
				assert.True(t, mounted, name)
			}
		}
		require.NoError(t, m.Remove(t.Context(), kruntime.PodRef{UID: "victim"}, dir))
		assert.NoDirExists(t, dir)
		points, err := mountsBelow(pods)
		require.NoError(t, err)
		assert.Equal(t, mountsOfOther, points)
		for _, name := range []string{"disk", "memory"} {
			data, err := os.ReadFile(filepath.Join(ready[name].HostPath, "f"))
			require.NoError(t, err)
			assert.Equal(t, "mine", string(data))
		}
	}
	steps := 0
	for steps = 1; victim(t, dir, steps, 0); steps++ {
		recovers(steps%2 == 0, false)
		if t.Failed() {
			t.Fatalf("killed at step %d", steps)
		}
	}
	assert.Greater(t, steps, 40)
	t.Logf("%d steps", steps-1)
	for i := range 20 {
		after := time.Duration(rand.Int64N(int64(30 * time.Millisecond)))
		victim(t, dir, 0, after)
		recovers(i%2 == 0, true)
		if t.Failed() {
			t.Fatalf("killed after %v", after)
		}
	}
}
