package nfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/nfs"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exit is the error of a program.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

// server is an NFS server whose exports are directories of this machine, with the programs that mount them.
type server struct {
	dir string

	mu sync.Mutex
	// calls are those of the programs, with their arguments.
	calls []string
	// fails is the output of mount if it fails, busy that of umount.
	fails, busy string
	// away, if not nil, holds mount and umount until it is closed or their context ends.
	away chan struct{}
	// called has one value for each call of a program.
	called chan string
}

func newServer(t *testing.T) *server {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	return &server{dir: t.TempDir(), called: make(chan string, 1000)}
}

// run is mount and umount.
func (s *server) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	call := program + " " + strings.Join(args, " ")
	s.calls = append(s.calls, call)
	away, fails, busy := s.away, s.fails, s.busy
	s.mu.Unlock()
	s.called <- call
	target := args[len(args)-1]
	switch forced := slices.Contains(args, "-f"); {
	case forced:
		return nil, unix.Unmount(target, unix.MNT_FORCE|unix.MNT_DETACH)
	case away != nil:
		select {
		case <-away:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	switch {
	case program == "umount" && busy != "":
		return []byte(busy), exit(32)
	case program == "umount":
		return nil, unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	case fails != "":
		return []byte(fails), exit(32)
	}
	return nil, unix.Mount(s.dir, target, "", unix.MS_BIND, "")
}

func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *server) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.calls
	s.calls = nil
	return out
}

func (s *server) plugin(t *testing.T, opts nfs.Options) *nfs.Plugin {
	t.Helper()
	p, err := nfs.New(nfs.WithPrograms(opts, s.run, true, safefile.DiskSize))
	require.NoError(t, err)
	return p
}

func (s *server) manager(t *testing.T, p volume.PersistentPlugin) *volume.Reconciler {
	t.Helper()
	m, err := volume.New(volume.Options{Persistent: []volume.PersistentPlugin{p}})
	require.NoError(t, err)
	return m
}

func inline(server string, readOnly bool) v1.Volume {
	return v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: server, Path: "/export",
		ReadOnly: readOnly}}}
}

func pod(name string, v v1.Volume) *v1.Pod {
	return testpod.New(name, testpod.Namespace("default"), testpod.UID(types.UID("uid-"+name)),
		testpod.Containers("main"), testpod.Volumes(v))
}

func ref(name string) kruntime.PodRef { return kruntime.PodRef{UID: types.UID("uid-" + name)} }

func persistent() *v1.PersistentVolume {
	pv := &v1.PersistentVolume{}
	pv.Name = "pv-1"
	pv.Spec.NFS = &v1.NFSVolumeSource{Server: "nfs.example.com", Path: "/export"}
	pv.Spec.MountOptions = []string{"nfsvers=4.1", "hard"}
	return pv
}

func TestConformance(t *testing.T) {
	s := newServer(t)
	var earlier *nfs.Plugin
	volumetest.PersistentSuite(t, volumetest.PersistentFactory{Volume: persistent(),
		New: func(t *testing.T) volume.PersistentPlugin {
			if earlier != nil { // the end of the agent ends its calls
				require.Eventually(t, earlier.Idle, time.Minute, time.Millisecond)
			}
			earlier = s.plugin(t, nfs.Options{})
			return earlier
		}})
}

// Arguments and paths are kubelet's.
func TestMount(t *testing.T) {
	s := newServer(t)
	p := s.plugin(t, nfs.Options{})
	pods := t.TempDir()
	for name, test := range map[string]struct {
		pv       *v1.PersistentVolume
		readOnly bool
		args     string
	}{
		"options":   {persistent(), false, "-t nfs -o hard,nfsvers=4.1 nfs.example.com:/export"},
		"read-only": {persistent(), true, "-t nfs -o hard,nfsvers=4.1,ro nfs.example.com:/export"},
		"inline": {p.Inline(nil, &v1.Volume{Name: "pv-1", VolumeSource: inline("fd00::1", true).VolumeSource}), false,
			"-t nfs -o ro [fd00::1]:/export"},
		"IPv4": {p.Inline(nil, &v1.Volume{Name: "pv-1", VolumeSource: inline("10.0.0.1", false).VolumeSource}), false,
			"-t nfs 10.0.0.1:/export"},
	} {
		t.Run(name, func(t *testing.T) {
			place := volume.PlaceOf(filepath.Join(pods, name), nfs.Name, "pv-1")
			req := volume.PersistentRequest{Volume: test.pv, ReadOnly: test.readOnly, Place: place}
			for range 2 {
				ready, err := p.Publish(t.Context(), req)
				require.NoError(t, err)
				assert.Equal(t, kruntime.Volume{HostPath: filepath.Join(pods, name, "volumes/kubernetes.io~nfs/pv-1"),
					ReadOnly: test.readOnly || test.pv.Spec.NFS.ReadOnly}, ready.Volume)
				assert.False(t, ready.FSGroup)
			}
			assert.Equal(t, []string{"mount " + test.args + " " + place.Dir}, s.take())
			stats, err := p.Stats(t.Context(), place)
			require.NoError(t, err)
			assert.NotZero(t, *stats.CapacityBytes)
			require.NoError(t, p.Unpublish(t.Context(), volume.UnpublishRequest{Place: place}))
			assert.Equal(t, []string{"umount " + place.Dir}, s.take())
			_, err = p.Stats(t.Context(), place)
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

func TestMountErrors(t *testing.T) {
	s := newServer(t)
	dir := t.TempDir()
	s.fails = "mount.nfs: access denied by server while mounting nfs.example.com:/export\n"
	_, err := s.manager(t, s.plugin(t, nfs.Options{})).SetUp(t.Context(), pod("web", inline("nfs.example.com", false)), dir)
	place := volume.PlaceOf(dir, nfs.Name, "data")
	require.ErrorContains(t, err, `MountVolume.SetUp failed for volume "data" : mount failed: exit status 32
Mounting command: mount
Mounting arguments: -t nfs nfs.example.com:/export `+place.Dir+`
Output: `+s.fails)
	assert.NoDirExists(t, place.Dir)

	missing, err := nfs.New(nfs.WithPrograms(nfs.Options{}, s.run, false, nil))
	require.NoError(t, err)
	_, err = missing.Publish(t.Context(), volume.PersistentRequest{Volume: persistent(), Place: place})
	require.ErrorContains(t, err, "mount.nfs is missing: install the package nfs-common")

	none, err := nfs.New(nfs.WithPrograms(nfs.Options{}, func(context.Context, string, ...string) ([]byte, error) {
		return nil, nil
	}, true, nil))
	require.NoError(t, err)
	_, err = none.Publish(t.Context(), volume.PersistentRequest{Volume: persistent(), Place: place})
	require.ErrorContains(t, err, "the mount option bg is not supported")
	_, err = none.Publish(t.Context(), volume.PersistentRequest{Volume: persistent(), Place: place, Block: true})
	require.ErrorIs(t, err, volume.ErrUnsupported)

	_, err = nfs.New(nfs.Options{UnmountTimeout: -1})
	require.ErrorContains(t, err, "nfs: Options.UnmountTimeout is -1ns, which is negative")
}

// A mount that hangs holds no other pod, nor the end of its own.
func TestMountHangs(t *testing.T) {
	s := newServer(t)
	m, pods := s.manager(t, s.plugin(t, nfs.Options{})), t.TempDir()
	s.away = make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() {
		_, err := m.SetUp(ctx, pod("web", inline("nfs.example.com", false)), filepath.Join(pods, "web"))
		failed <- err
	}()
	require.Contains(t, <-s.called, "mount ")
	s.set(func() { s.away = nil })
	_, err := m.SetUp(t.Context(), pod("db", inline("other.example.com", false)), filepath.Join(pods, "db"))
	require.NoError(t, err)
	require.NoError(t, m.Remove(t.Context(), ref("db"), filepath.Join(pods, "db")))
	cancel(assert.AnError)
	require.ErrorIs(t, <-failed, assert.AnError)
	require.NoError(t, m.Remove(t.Context(), ref("web"), filepath.Join(pods, "web")))
	assert.NoDirExists(t, filepath.Join(pods, "web"))
}

// A server that is away holds the end of its pod up to the timeout. Nothing is removed on the server.
func TestUnmountHangs(t *testing.T) {
	s := newServer(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "file"), nil, 0o600))
	var logged []string
	p := s.plugin(t, nfs.Options{UnmountTimeout: 10 * time.Millisecond,
		Logger: funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{})})
	m, dir := s.manager(t, p), filepath.Join(t.TempDir(), "web")
	_, err := m.SetUp(t.Context(), pod("web", inline("nfs.example.com", false)), dir)
	require.NoError(t, err)
	place := volume.PlaceOf(dir, nfs.Name, "data")
	s.take()

	s.set(func() { s.busy = "umount: target is busy.\n" })
	err = m.Remove(t.Context(), ref("web"), dir)
	require.ErrorContains(t, err, "unmount failed: exit status 32\nUnmounting arguments: "+place.Dir+
		"\nOutput: umount: target is busy.")
	assert.Equal(t, []string{"umount " + place.Dir}, s.take(), "the server has answered: no force")
	assert.FileExists(t, filepath.Join(place.Dir, "file"))

	away := make(chan struct{})
	s.set(func() { s.busy, s.away = "", away })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, m.Remove(ctx, ref("web"), dir), "the agent ends")
	assert.FileExists(t, filepath.Join(place.Dir, "file"))
	require.Eventually(t, p.Idle, time.Minute, time.Millisecond)
	s.take()

	require.NoError(t, m.Remove(t.Context(), ref("web"), dir))
	assert.Equal(t, []string{"umount " + place.Dir, "umount -f -l " + place.Dir}, s.take())
	assert.NoDirExists(t, dir)
	assert.FileExists(t, filepath.Join(s.dir, "file"))
	assert.Len(t, logged, 1)
}

// A mounted volume needs no server when the agent or a container starts.
func TestMountedVolumeNeedsNoServer(t *testing.T) {
	s := newServer(t)
	dir := filepath.Join(t.TempDir(), "web")
	web := pod("web", inline("nfs.example.com", false))
	_, err := s.manager(t, s.plugin(t, nfs.Options{})).SetUp(t.Context(), web, dir)
	require.NoError(t, err)
	s.take()
	m := s.manager(t, s.plugin(t, nfs.Options{}))
	_, err = m.SetUp(t.Context(), web, dir)
	require.NoError(t, err)
	assert.Empty(t, s.take())
	require.NoError(t, m.Remove(t.Context(), ref("web"), dir))
}

// The usage of a volume whose server is away is missing. One call hangs, however often it is measured.
func TestStatsHang(t *testing.T) {
	s := newServer(t)
	answer, calls := make(chan struct{}), 0
	p, err := nfs.New(nfs.WithPrograms(nfs.Options{}, s.run, true, func(string) (safefile.Disk, error) {
		calls++
		<-answer
		return safefile.Disk{}, errors.New("an I/O error")
	}))
	require.NoError(t, err)
	place := volume.PlaceOf(t.TempDir(), nfs.Name, "data")
	_, err = p.Publish(t.Context(), volume.PersistentRequest{Volume: persistent(), Place: place})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(assert.AnError)
	_, err = p.Stats(ctx, place)
	require.ErrorIs(t, err, assert.AnError)
	_, err = p.Stats(t.Context(), place)
	require.ErrorContains(t, err, "the NFS server does not answer")
	close(answer)
	require.NoError(t, p.Unpublish(t.Context(), volume.UnpublishRequest{Place: place}))
	require.Eventually(t, p.Idle, time.Minute, time.Millisecond)
	assert.Equal(t, 1, calls)
}

// Without programs, the error says what is missing.
func TestNoPrograms(t *testing.T) {
	p, err := nfs.New(nfs.WithPrograms(nfs.Options{}, func(_ context.Context, program string, _ ...string) ([]byte, error) {
		return nil, &exec.Error{Name: program, Err: exec.ErrNotFound}
	}, true, nil))
	require.NoError(t, err)
	_, err = p.Publish(t.Context(), volume.PersistentRequest{Volume: persistent(),
		Place: volume.PlaceOf(t.TempDir(), nfs.Name, "data")})
	require.ErrorContains(t, err, "the agent needs the programs of the package util-linux or mount")
}
