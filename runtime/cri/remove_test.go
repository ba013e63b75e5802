package cri_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestRemoveContainer(t *testing.T) {
	svc := newService(t, "app:1")
	s := running(t, svc, podOf("a"))
	c := svc.status("a")
	id := s.status().Newest("a").ID
	err := s.rt.RemoveContainer(t.Context(), id)
	assert.EqualError(t, err, "pod default/web(uid-1), container a: fake://c2 is running; stop it before it is removed")

	svc.exit("a", 0)
	dir := filepath.Dir(c.LogPath)
	for _, name := range []string{"0.log", "0.log.20260102-030405.gz", "0.log.20260102-030405.gz.tmp",
		"10.log", "0.logbook"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	message := c.Mounts[1].HostPath
	require.FileExists(t, message)
	svc.calls()
	yield := svc.Inject(fake.Fault{Call: "RemoveContainer", Err: status.Error(codes.FailedPrecondition,
		"cannot delete running task")})
	err = s.rt.RemoveContainer(t.Context(), id)
	assert.EqualError(t, err, "pod default/web(uid-1), container a: RemoveContainer: cannot delete running task; "+
		"the runtime does not list it as running; if this persists, restart the runtime, which leaves containers running")
	yield()
	svc.calls()
	require.NoError(t, s.rt.RemoveContainer(t.Context(), id))
	assert.Equal(t, []string{"RemoveContainer c2"}, svc.calls())
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(dir, "0.logbook"), filepath.Join(dir, "10.log")}, left)
	assert.NoFileExists(t, message)

	require.NoError(t, s.rt.RemoveContainer(t.Context(), id), "what is gone is removed")
	assert.Empty(t, svc.calls())
}

// Log shippers find logs by links that are named as kubelet's.
func TestLogLinks(t *testing.T) {
	svc := newService(t, "app:1")
	svc.Script(fake.Target{}, fake.Behavior{Output: "hello"})
	dir := filepath.Join(t.TempDir(), "containers")
	s := newSyncer(t, svc.client(cri.Options{LogLinksDir: dir}), podOf("a", "b"))
	s.mustSync()
	links := func() (names []string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.Equal(t, []string{"web_default_a-c2.log", "web_default_b-c3.log"}, links())
	target, err := os.Readlink(filepath.Join(dir, "web_default_a-c2.log"))
	require.NoError(t, err)
	assert.Equal(t, svc.status("a").LogPath, target)

	svc.exit("a", 1)
	s.mustSync()
	assert.Equal(t, []string{"web_default_a-c2.log", "web_default_a-c4.log", "web_default_b-c3.log"}, links(),
		"one for each instance")
	require.NoError(t, s.rt.RemoveContainer(t.Context(), runtime.ContainerID{Type: "fake", ID: "c2"}))
	assert.Equal(t, []string{"web_default_a-c4.log", "web_default_b-c3.log"}, links())

	foreign := filepath.Join(dir, "web_default_b-c3.log")
	require.NoError(t, os.Remove(foreign))
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	svc.exit("b", 1)
	require.NoError(t, s.rt.RemoveContainer(t.Context(), runtime.ContainerID{Type: "fake", ID: "c3"}))
	assert.FileExists(t, foreign, "it is no link")

	s.mustSync()
	other := filepath.Join(dir, "web_default_b-c5.log")
	require.NoError(t, os.Remove(other))
	require.NoError(t, os.Symlink("/elsewhere", other))
	svc.exit("b", 1)
	require.NoError(t, s.rt.RemoveContainer(t.Context(), runtime.ContainerID{Type: "fake", ID: "c5"}))
	assert.Contains(t, links(), "web_default_b-c5.log", "it is a link to another log")
}

// A user that may not make the links reads so once.
func TestLogLinksThatCannotBeMade(t *testing.T) {
	svc := newService(t, "app:1")
	svc.Script(fake.Target{}, fake.Behavior{Output: "hello"})
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	s := newSyncer(t, svc.client(cri.Options{LogLinksDir: filepath.Join(file, "containers"),
		Observer: runtime.Observer{Logger: log}}),
		podOf("a", "b"))
	s.mustSync()
	require.Len(t, logged, 1)
	assert.Contains(t, logged[0], "Links to the logs of containers cannot be made")
}

func TestRemoveSandbox(t *testing.T) {
	svc := newService(t, "app:1")
	s := running(t, svc, podOf("a"))
	require.NoError(t, s.rt.RemoveSandbox(t.Context(), "s1"))
	assert.Equal(t, []string{"StopPodSandbox s1", "RemovePodSandbox s1"}, svc.calls())
	svc.Inject(fake.Fault{Err: runtime.ErrNotFound})
	require.NoError(t, s.rt.RemoveSandbox(t.Context(), "s1"))
}

// For each StopPodSandbox containerd takes the network of the sandbox down.
func TestSandboxIsStoppedOnce(t *testing.T) {
	const stop, remove = "StopPodSandbox s1", "RemovePodSandbox s1"
	tests := []struct {
		name string
		end  func(s *syncer, svc *service)
		want []string
	}{
		{
			name: "by a kill",
			end:  func(s *syncer, _ *service) { s.mustKill() },
			want: []string{"StopContainer a 30", stop, remove},
		},
		{
			name: "by a kill and its repetition",
			end:  func(s *syncer, _ *service) { s.mustKill(); s.mustKill() },
			want: []string{"StopContainer a 30", stop, remove},
		},
		{
			name: "it has died by itself",
			end:  func(_ *syncer, svc *service) { svc.KillSandbox(fake.Target{}) },
			want: []string{stop, remove},
		},
		{
			name: "it has died by itself before the kill",
			end:  func(s *syncer, svc *service) { svc.KillSandbox(fake.Target{}); s.mustKill() },
			want: []string{stop, remove},
		},
		{
			// What the runtime lists does not show whether its network was released.
			name: "by an earlier agent",
			end:  func(s *syncer, svc *service) { s.mustKill(); s.rt = svc.client(cri.Options{}) },
			want: []string{"StopContainer a 30", stop, stop, remove},
		},
		{
			name: "after a stop that failed",
			end: func(s *syncer, svc *service) {
				yield := svc.Inject(fake.Fault{Call: "StopPodSandbox", Err: errors.New("the network is busy")})
				assert.Error(s.t, s.kill())
				yield()
			},
			want: []string{"StopContainer a 30", stop, stop, remove},
		},
		{
			name: "a list keeps what it has",
			end: func(s *syncer, _ *service) {
				s.mustKill()
				_, err := s.rt.ListPods(s.t.Context())
				require.NoError(s.t, err)
			},
			want: []string{"StopContainer a 30", stop, remove},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := newService(t, "app:1")
			s := running(t, svc, podOf("a"))
			tt.end(s, svc)
			require.NoError(t, s.rt.RemoveSandbox(t.Context(), "s1"))
			assert.Equal(t, tt.want, svc.calls())
		})
	}
}
