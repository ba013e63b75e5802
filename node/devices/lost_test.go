package devices_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/devices/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func allocations(p *fake.Provider) (out []string) {
	for _, c := range p.Calls() {
		if c.Method == "Allocate" {
			out = append(out, fmt.Sprint(c.Container, c.IDs))
		}
	}
	return out
}

// A checkpoint that cannot be read now is not lost: pods wait, and what ends meanwhile is released.
func TestCheckpointNotRead(t *testing.T) {
	bubble(t, list("a", "b", "c"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		pod, ends, next, refused := podOf("pod", 1), podOf("ends", 1), podOf("next", 1), podOf("refused", 1)
		r.start(pod)
		r.start(ends)
		r.start(refused)
		_ = stop()
		away := r.path + ".away"
		require.NoError(t, os.Rename(r.path, away))
		require.NoError(t, os.Mkdir(r.path, 0o700)) // it cannot be read as a file

		r.restart()
		stop = r.serve(p)
		defer func() { _ = stop() }()
		for _, pod := range []*v1.Pod{pod, ends, next} {
			require.NoError(t, r.admit(pod))
			assert.Empty(t, r.Hints(pod, nil))
			require.ErrorContains(t, r.prepare(pod), "until the checkpoint of devices can be read: ")
			assert.Empty(t, r.ids(pod))
		}
		r.end(ends)
		r.Refused(refused)
		info, err := os.Stat(r.path)
		require.NoError(t, err)
		assert.True(t, info.IsDir(), "it is neither renamed nor written")

		require.NoError(t, os.Remove(r.path))
		require.NoError(t, os.Rename(away, r.path))
		require.NoError(t, r.prepare(pod, "main"))
		require.NoError(t, r.prepare(next))
		assert.Equal(t, map[string][]string{"main": {"a"}}, r.ids(pod))
		assert.Equal(t, map[string][]string{"main": {"b"}}, r.ids(next))
		assert.Empty(t, r.ids(ends))
		assert.Empty(t, r.ids(refused))
		assert.Equal(t, []string{"main[a]", "main[b]", "main[c]", "main[b]"}, allocations(p))
	})
}

// Pods keep the devices of a checkpoint whose checksum is wrong, such as one with a field of a later kubelet, and of an
// entry whose answer is damaged. The provider is asked again, but not for a container that runs.
func TestChecksum(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"field of a later kubelet": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"Checksum":`), []byte(`"New":1,"Checksum":1`), 1)
		},
		"answer": func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"AllocResp":"C`), []byte(`"AllocResp":"/`)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, list("a", "b", "c"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
				pod, next := podOf("pod", 2), podOf("next", 1)
				p.OnPrefer = func(context.Context, devices.PreferRequest) ([]string,
					error) {
					return []string{"c", "b"}, nil
				}
				r.start(pod)
				_ = stop()
				content, err := os.ReadFile(r.path)
				require.NoError(t, err)
				damaged := damage(bytes.Clone(content))
				require.NotEqual(t, content, damaged)
				require.NoError(t, os.WriteFile(r.path, damaged, 0o600))
				for range 2 {
					r.restart()
					p.OnPrefer = func(context.Context, devices.PreferRequest) ([]string,
						error) {
						return []string{"a"}, nil
					}
					stop = r.serve(p)
					require.NoError(t, r.admit(pod))
					require.NoError(t, r.prepare(pod, "main"))
					assert.Equal(t, map[string][]string{"main": {"b", "c"}}, r.ids(pod))
					assert.Equal(t, []string{"main[b c]"}, allocations(p), "it runs")
					_, err = r.Manager.EditContainer(runtime.WithResize(t.Context()), pod, &pod.Spec.Containers[0])
					require.NoError(t, err)
					_ = stop()
				}
				kept, err := os.ReadFile(r.path + ".damaged")
				require.NoError(t, err)
				assert.Equal(t, damaged, kept)
				stop = r.serve(p)
				defer func() { _ = stop() }()
				r.start(next)
				assert.Equal(t, map[string][]string{"main": {"a"}}, r.ids(next))
				_, err = r.edits(pod, "main")
				require.ErrorContains(t, err, "it was not prepared")
				require.NoError(t, r.prepare(pod))
				edits, err := r.edits(pod, "main")
				require.NoError(t, err)
				assert.Equal(t, "b,c", edits.Env[0].Value)
			})
		})
	}
}

// A container that runs gets no devices by a call of Allocate, though the checkpoint is lost.
func TestCheckpointLostWhileAContainerRuns(t *testing.T) {
	bubble(t, list("a", "b"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		pod := podOf("pod", 1)
		r.start(pod)
		_ = stop()
		require.NoError(t, os.WriteFile(r.path, []byte("{"), 0o600))
		r.restart()
		stop = r.serve(p)
		defer func() { _ = stop() }()
		require.NoError(t, r.admit(pod))
		require.NoError(t, r.prepare(pod, "main"))
		assert.Len(t, allocations(p), 1)
		require.NoError(t, r.prepare(pod))
		assert.Len(t, allocations(p), 2)
	})
}

// An answer that would not be read again fails its pod only.
func TestLargeAnswer(t *testing.T) {
	bubble(t, list("a", "b"), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		p.OnAllocate = func(_ context.Context, req devices.Request) (runtime.ContainerEdits, error) {
			size := map[string]int{"large": 256 << 10, "small": 255 << 10}[req.Pod.Name]
			return runtime.ContainerEdits{Env: []v1.EnvVar{{Name: "A", Value: strings.Repeat("x", size)}}}, nil
		}
		large, small := podOf("large", 1), podOf("small", 1)
		require.NoError(t, r.admit(large))
		require.ErrorContains(t, r.prepare(large), "the provider of example.com/port has returned 26")
		r.start(small)
		r.restart()
		assert.NotEmpty(t, r.ids(small))
		assert.Empty(t, r.ids(large))
	})
}

// All answers together do not exceed what is read again.
func TestManyLargeAnswers(t *testing.T) {
	var all []devices.Device
	for i := range 100 {
		all = append(all, devices.Device{ID: fmt.Sprintf("%03d", i)})
	}
	bubble(t, all, func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		r.opts, r.path = devices.Options{}, ""
		r.restart() // in memory: many writes of 16 MiB are slow
		p.OnAllocate = func(context.Context, devices.Request) (runtime.ContainerEdits, error) {
			return runtime.ContainerEdits{Env: []v1.EnvVar{{Name: "A", Value: strings.Repeat("x", 255<<10)}}}, nil
		}
		stop := r.serve(p)
		defer func() { _ = stop() }()
		var err error
		started := 0
		for i := range all {
			pod := podOf(fmt.Sprint("p", i), 1)
			require.NoError(t, r.admit(pod))
			if err = r.prepare(pod); err != nil {
				break
			}
			started++
		}
		require.ErrorContains(t, err, "the checkpoint of devices would have more than 16 MiB")
		assert.Greater(t, started, 25)
	})
}

// A checkpoint that is too large is not read, however many pods wait for it. They go on when it is gone.
func TestHugeCheckpoint(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, _ *fake.Provider, _ func() error) {
		pod := podOf("pod", 1)
		r.start(pod)
		kept := r.path + ".kept"
		require.NoError(t, os.Rename(r.path, kept))
		require.NoError(t, os.WriteFile(r.path, nil, 0o600))
		require.NoError(t, os.Truncate(r.path, 8<<30))
		r.restart()
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		for range 100 {
			require.ErrorContains(t, r.prepare(pod), "wait until the checkpoint of devices can be read")
		}
		goruntime.ReadMemStats(&after)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
		require.NoError(t, os.Rename(kept, r.path))
		assert.NotContains(t, fmt.Sprint(r.prepare(pod)), "checkpoint")
		assert.NotEmpty(t, r.ids(pod))
	})
}

// What is freed while the disk is full is written when it is not full any more, without a further change.
func TestCheckpointIsWrittenAgain(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, _ *fake.Provider, _ func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		pod := podOf("pod", 1)
		r.start(pod)
		require.NoError(t, os.Remove(r.path))
		require.NoError(t, os.MkdirAll(filepath.Join(r.path, "x"), 0o700))
		r.end(pod)
		time.Sleep(10 * time.Second)
		require.NoError(t, os.RemoveAll(r.path))
		time.Sleep(time.Minute)
		synctest.Wait()
		content, err := os.ReadFile(r.path)
		require.NoError(t, err)
		assert.NotContains(t, string(content), "uid-pod")
		cancel()
		require.NoError(t, <-done)
	})
}

// What an earlier agent gave a pod that is refused is not in the checkpoint any more.
func TestRefusedIsWritten(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, _ *fake.Provider, stop func() error) {
		pod := podOf("pod", 1)
		r.start(pod)
		_ = stop()
		r.restart()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		r.Refused(pod)
		synctest.Wait()
		assert.Empty(t, r.ids(pod))
		content, err := os.ReadFile(r.path)
		require.NoError(t, err)
		assert.NotContains(t, string(content), "uid-pod")
		cancel()
		require.NoError(t, <-done)
	})
}

// A pod of which something has run waits for devices of a provider that came later, and is not failed.
func TestTooFewDevicesAfterThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pod := podOf("pod", 2)
		r.start(pod)
		p := fake.New(port, list("a")...)
		stop := r.serve(p)
		defer func() { _ = stop() }()
		require.NoError(t, r.prepare(pod, "main"))
		err := r.prepareWith(pod, in("main", runtime.ContainerExited)) // it crashed
		require.ErrorContains(t, err, "requested number of devices unavailable")
		require.NotErrorAs(t, err, new(*runtime.TerminalError))
		p.Set(list("a", "b")...)
		synctest.Wait()
		assert.Equal(t, "[uid-pod]", fmt.Sprint(r.node.Syncs()))
		require.NoError(t, r.prepareWith(pod, in("main", runtime.ContainerExited)))
	})
}

// An init container that has ended gets no devices of a provider that came later.
func TestInitContainerIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pod := testpod.New("pod", testpod.Init(wants("init", ports(5))), testpod.Container(wants("main", ports(1)),
			wants("other", nil)))
		r.start(pod)
		stop := r.serve(fake.New(port, list("a")...))
		defer func() { _ = stop() }()
		over, crashed, other := in("init", runtime.ContainerExited), in("main", runtime.ContainerExited),
			in("other", runtime.ContainerRunning)
		require.NoError(t, r.prepareWith(pod, in("main", runtime.ContainerRunning), over))
		assert.Empty(t, r.ids(pod))
		require.NoError(t, r.prepareWith(pod, crashed, over))
		assert.Equal(t, map[string][]string{"main": {"a"}}, r.ids(pod))
		require.NoError(t, r.prepareWith(pod, other, crashed), "its instance was removed")
		old := over
		old.SandboxID = "old"
		require.ErrorContains(t, r.prepareWith(pod, old), "Requested: 5", "it runs in the new sandbox, too")

		_, err := r.edits(pod, "init")
		require.Error(t, err)
		require.ErrorContains(t, r.prepareWith(pod, over), "Requested: 5", "it is started again")
	})
}

// IDs are in messages and in the status of pods.
func TestLongIDs(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	bubble(t, list(long(1024), long(1025)), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		assert.Equal(t, [2]int64{1, 1}, r.counts())
		assert.Contains(t, r.logged[len(r.logged)-1], `"count"=1`)
		p.OnAllocate = func(context.Context, devices.Request) (runtime.ContainerEdits, error) {
			return runtime.ContainerEdits{}, os.ErrInvalid
		}
		pod := podOf("pod", 1)
		require.NoError(t, r.admit(pod))
		assert.Less(t, len(r.prepare(pod).Error()), 1000)
	})
}

// Nodes that the machine does not have are ignored, as by kubelet.
func TestNodesOfTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.Nodes = numa.Of(0, 1)
		r.restart()
		all := on(0, "a")
		for node := range numa.MaxNodes {
			all = append(all, devices.Device{ID: fmt.Sprint("d", node), Nodes: numa.Of(node) | numa.Of(0)})
		}
		stop := r.serve(fake.New(port, all...))
		defer func() { _ = stop() }()
		assert.Equal(t, []numa.Hint{{Nodes: numa.Of(0), Preferred: true}, {Nodes: numa.Of(1), Preferred: true},
			{Nodes: numa.Of(0, 1)}}, r.Hints(podOf("pod", 1), nil)[port])
	})
}
