package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/local"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

// disk is a disk of the machine: a file with the type of its file system, whose files are in a directory.
type disk struct {
	path, files string

	mu    sync.Mutex
	calls []string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	d := &disk{path: filepath.Join(t.TempDir(), "disk"), files: t.TempDir()}
	require.NoError(t, os.WriteFile(d.path, nil, 0o600))
	return d
}

func (d *disk) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, strings.ReplaceAll(program+" "+strings.Join(args, " "), d.path, "DISK"))
	switch program {
	case "blkid":
		content, err := os.ReadFile(d.path)
		if err == nil && len(content) == 0 {
			return nil, exit(2)
		}
		return fmt.Appendf(nil, "TYPE=%s\n", content), err
	case "fsck":
		return nil, nil
	case "mount":
		source, target := args[len(args)-2], args[len(args)-1]
		if source == d.path {
			source = d.files
		}
		return nil, unix.Mount(source, target, "", unix.MS_BIND, "")
	}
	_, fsType, formats := strings.Cut(program, "mkfs.")
	if !formats {
		return nil, nil
	}
	return nil, os.WriteFile(d.path, []byte(fsType), 0o600)
}

func (d *disk) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.calls
	d.calls = nil
	return out
}

func (d *disk) isDevice(path string) (bool, error) {
	if _, err := os.Stat(path); err != nil {
		return false, err
	}
	return path == d.path, nil
}

func (d *disk) plugin(t *testing.T, root string) *local.Plugin {
	t.Helper()
	p, err := local.New(root, local.WithPrograms(d.run, d.isDevice))
	require.NoError(t, err)
	return p
}

func (d *disk) volume(mode v1.PersistentVolumeMode) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{}
	pv.Name = "pv-1"
	pv.Spec.Local = &v1.LocalVolumeSource{Path: d.path, FSType: ptr.To("xfs")}
	pv.Spec.VolumeMode = &mode
	pv.Spec.MountOptions = []string{"noatime"}
	return pv
}

func TestConformance(t *testing.T) {
	d, root := newDisk(t), t.TempDir()
	var earlier *local.Plugin
	volumetest.PersistentSuite(t, volumetest.PersistentFactory{Volume: d.volume(v1.PersistentVolumeFilesystem),
		New: func(t *testing.T) volume.PersistentPlugin {
			if earlier != nil { // the end of the agent ends its calls
				require.Eventually(t, earlier.Idle, time.Minute, time.Millisecond)
			}
			earlier = d.plugin(t, root)
			return earlier
		}})
	assert.NoDirExists(t, filepath.Join(root, "plugins/kubernetes.io/local-volume/mounts/pv-1"))
}

func TestSupports(t *testing.T) {
	d := newDisk(t)
	p := d.plugin(t, t.TempDir())
	pv := d.volume(v1.PersistentVolumeFilesystem)
	assert.True(t, p.Supports(pv))
	pv.Spec.Local.Path = t.TempDir()
	assert.False(t, p.Supports(pv), "a directory needs no plugin")
	pv.Spec.Local.Path = "/none"
	assert.False(t, p.Supports(pv))
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	assert.True(t, p.Supports(pv))
	assert.False(t, p.Supports(&v1.PersistentVolume{}))

	_, err := local.New("relative", local.Options{})
	require.ErrorContains(t, err, `local: the root directory "relative" is not an absolute path`)
	real, err := local.New("/root-dir", local.Options{})
	require.NoError(t, err)
	pv = d.volume(v1.PersistentVolumeFilesystem)
	assert.False(t, real.Supports(pv), "a file is no device")
}

// claims are bound to one volume each, which has the name of the claim.
type claims map[string]*v1.PersistentVolume

func (claims) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID(name)
	claim.Spec.VolumeName, claim.Status.Phase = name, v1.ClaimBound
	return claim, nil
}

func (c claims) UpdateStatus(_ context.Context, old, _ *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return old, volume.ErrUnsupported
}

func (c claims) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	pv := c[name].DeepCopy()
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: types.UID(name)}
	return pv, nil
}

func pod(name string, block bool) *v1.Pod {
	p := testpod.New(name, testpod.Namespace("default"), testpod.UID(types.UID("uid-"+name)), testpod.Containers("main"),
		testpod.Volumes(v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "pv-1"}}}))
	if block {
		p.Spec.Containers[0].VolumeMounts = nil
		p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	}
	return p
}

func ref(name string) kruntime.PodRef { return kruntime.PodRef{UID: types.UID("uid-" + name)} }

func manager(t *testing.T, p volume.PersistentPlugin, pv *v1.PersistentVolume) *volume.Reconciler {
	t.Helper()
	m, err := volume.New(volume.Options{Persistent: []volume.PersistentPlugin{p},
		Sources: volume.Sources{Claims: claims{"pv-1": pv}}})
	require.NoError(t, err)
	return m
}

// Paths, programs and arguments are kubelet's. A disk is formatted once, and its files stay.
func TestFileSystem(t *testing.T) {
	d, root := newDisk(t), t.TempDir()
	m := manager(t, d.plugin(t, root), d.volume(v1.PersistentVolumeFilesystem))
	stage := filepath.Join(root, "plugins/kubernetes.io/local-volume/mounts/pv-1")
	dir := func(name string) string { return filepath.Join(root, "pods", "uid-"+name) }
	bound := func(name string) string { return filepath.Join(dir(name), "volumes/kubernetes.io~local-volume/pv-1") }
	ready, err := m.SetUp(t.Context(), pod("web", false), dir("web"))
	require.NoError(t, err)
	assert.Equal(t, kruntime.Volume{HostPath: bound("web"), Relabel: true}, ready["data"])
	assert.Equal(t, []string{"blkid -p -s TYPE -s PTTYPE -o export DISK", "mkfs.xfs -f DISK",
		"mount -t xfs -o noatime,defaults DISK " + stage, "mount -o bind,noatime " + stage + " " + bound("web")}, d.take())
	require.NoError(t, os.WriteFile(filepath.Join(bound("web"), "file"), nil, 0o600))

	group := pod("db", false)
	group.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4242)}
	_, err = m.SetUp(t.Context(), group, dir("db"))
	require.NoError(t, err)
	assert.Equal(t, []string{"mount -o bind,noatime " + stage + " " + bound("db")}, d.take())
	info, err := os.Stat(filepath.Join(bound("db"), "file"))
	require.NoError(t, err)
	assert.Zero(t, info.Sys().(*syscall.Stat_t).Gid, "another pod has the volume")
	for _, name := range []string{"web", "db"} {
		require.NoError(t, m.Remove(t.Context(), ref(name), dir(name)))
	}
	assert.NoDirExists(t, stage)

	_, err = m.SetUp(t.Context(), group, dir("db"))
	require.NoError(t, err)
	assert.Equal(t, []string{"blkid -p -s TYPE -s PTTYPE -o export DISK", "fsck -a DISK",
		"mount -t xfs -o noatime,defaults DISK " + stage, "mount -o bind,noatime " + stage + " " + bound("db")}, d.take())
	info, err = os.Stat(filepath.Join(bound("db"), "file"))
	require.NoError(t, err)
	assert.EqualValues(t, 4242, info.Sys().(*syscall.Stat_t).Gid)
	require.NoError(t, m.Remove(t.Context(), ref("db"), dir("db")))
}

func TestDevice(t *testing.T) {
	d, root := newDisk(t), t.TempDir()
	m, dir := manager(t, d.plugin(t, root), d.volume(v1.PersistentVolumeBlock)), filepath.Join(root, "pods/uid-web")
	for range 2 {
		ready, err := m.SetUp(t.Context(), pod("web", true), dir)
		require.NoError(t, err)
		device := filepath.Join(dir, "volumeDevices/kubernetes.io~local-volume/pv-1")
		assert.Equal(t, device, ready["data"].HostPath)
		to, err := os.Readlink(device)
		require.NoError(t, err)
		assert.Equal(t, d.path, to)
	}
	assert.Empty(t, d.take())
	require.NoError(t, m.Remove(t.Context(), ref("web"), dir))
	assert.FileExists(t, d.path)

	require.NoError(t, os.Remove(d.path))
	_, err := m.SetUp(t.Context(), pod("web", true), dir)
	require.ErrorContains(t, err, fmt.Sprintf(`MapVolume.MountDevice failed for volume "pv-1" : path %q does not exist`, d.path))
	require.NoError(t, m.Remove(t.Context(), ref("web"), dir))
}

// mkfs that has begun is completed, also if the pod is gone meanwhile.
func TestFormatIsNotInterrupted(t *testing.T) {
	d, root := newDisk(t), t.TempDir()
	began, goOn := make(chan struct{}), make(chan struct{})
	p, err := local.New(root, local.WithPrograms(func(ctx context.Context, program string, args ...string) ([]byte, error) {
		if strings.HasPrefix(program, "mkfs") {
			close(began)
			<-goOn
		}
		return d.run(ctx, program, args...)
	}, d.isDevice))
	require.NoError(t, err)
	m, dir := manager(t, p, d.volume(v1.PersistentVolumeFilesystem)), filepath.Join(root, "pods/uid-web")
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() {
		_, err := m.SetUp(ctx, pod("web", false), dir)
		failed <- err
	}()
	<-began
	cancel(errors.New("the pod is deleted"))
	require.ErrorContains(t, <-failed, "the pod is deleted")
	close(goOn)
	require.NoError(t, m.Remove(t.Context(), ref("web"), dir))
	content, err := os.ReadFile(d.path)
	require.NoError(t, err)
	assert.Equal(t, "xfs", string(content))
}

func TestExpand(t *testing.T) {
	d, root := newDisk(t), t.TempDir()
	require.NoError(t, os.WriteFile(d.path, []byte("ext4"), 0o600))
	p, pv := d.plugin(t, root), d.volume(v1.PersistentVolumeFilesystem)
	pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	require.NoError(t, p.Expand(t.Context(), volume.PersistentRequest{Volume: pv}))
	assert.Equal(t, []string{"blkid -p -s TYPE -s PTTYPE -o export DISK", "resize2fs DISK"}, d.take())
	require.ErrorIs(t, p.Expand(t.Context(), volume.PersistentRequest{Volume: pv, Block: true}), volume.ErrUnsupported)
}
