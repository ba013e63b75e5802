package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// withDevice makes a pod whose main container has the claim as the device /dev/disk, and the option.
func withDevice(name, claim string, readOnly bool, options ...Option) *v1.Pod {
	device := v1.VolumeDevice{Name: "disk", DevicePath: "/dev/disk"}
	pod := MakePod(name, append(options, Main(Sh("c", Forever)), Volume("disk", v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly}}))...)
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].VolumeDevices = []v1.VolumeDevice{device}
		}
	}
	return pod
}

// csiLeft returns an error while something of a CSI volume is left on the node: a file, other than those of kubelet's
// tree, a mount or a loop device.
func (s *nodeSuite) csiLeft() error {
	root := filepath.Join(s.agent.Root, "plugins", "kubernetes.io", "csi")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		rel, _ := filepath.Rel(root, path)
		if err == nil && (!e.IsDir() || strings.Count(rel, "/") > 1) {
			err = fmt.Errorf("%s is left", rel)
		}
		return err
	})
	if err != nil {
		return err
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.agent.PID()))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, root) || strings.Contains(line, "kubernetes.io~csi") && strings.Contains(line, s.Dir) {
			return fmt.Errorf("a mount is left: %s", line)
		}
	}
	if devices := loopsOf(s.Dir); len(devices) > 0 {
		return fmt.Errorf("loop devices are left: %v", devices)
	}
	return nil
}

// loopsOf returns the files below the directory that are attached to loop devices, by the device.
func loopsOf(dir string) map[string]string {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	devices := map[string]string{}
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(string(backing), dir+"/") {
			devices["/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file)))] = strings.TrimSpace(string(backing))
		}
	}
	return devices
}

// needLoopDevices skips the test where a file cannot be attached to a loop device.
func needLoopDevices(t *testing.T) {
	t.Helper()
	Need(t)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		Skip(t, "needs loop devices: %v", err)
	}
}

// Volumes of the mode Block: containers of all kinds read and write the device, a claim that is read-only permits no
// write, and nothing of the device is changed for a pod.
func TestCSIBlock(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	const name = "blocks.example.com"
	d := startCSI(t, s, name, "{attachRequired: false, fsGroupPolicy: File}", "-controller-capabilities=",
		"-volume=one=1048576", "-volume=two=1048576")
	ns := s.plane.Namespace(t, "csi")
	s.plane.Apply(t, csiVolume(ns, "one", name, "one", "ReadWriteOnce", "volumeMode: Block"))
	s.plane.Apply(t, csiVolume(ns, "two", name, "two", "ReadWriteOnce", "volumeMode: Block"))

	const put = "printf %s | dd of=/dev/disk bs=1 seek=%d conv=notrunc,fsync"
	get := func(seek int) []string {
		return []string{"dd", "if=/dev/disk", "bs=1", "count=4", fmt.Sprintf("skip=%d", seek), "status=none"}
	}
	group := int64(4242)
	writer := withDevice("writer", "one", false,
		Init(Sh("i", fmt.Sprintf(put, "init", 0))),
		Sidecar(Sh("s", fmt.Sprintf(put, "side", 4)+"; "+Forever)))
	writer.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	writer.Spec.Containers[0].Command[2] = fmt.Sprintf(put, "main", 8) + "; " + Forever
	s.create(t, ns, writer, withDevice("reader", "one", true), withDevice("other", "two", false))
	for _, pod := range []string{"writer", "reader", "other"} {
		s.await(t, ns, pod, Running)
	}
	written := func() {
		t.Helper()
		for i, text := range []string{"init", "side", "main"} {
			Eventually(t, within, "what the containers have written", func() error {
				if out := s.Exec(t, "reader", "c", get(4*i)...); out != text {
					return fmt.Errorf("%q instead of %q", out, text)
				}
				return nil
			})
		}
	}
	written()
	calls := csiCalls(t, d, "one")
	assert.Equal(t, 1, calls["NodeStageVolume"], "%v", calls)
	assert.Equal(t, 2, calls["NodePublishVolume"], "%v", calls)
	out, err := s.TryExec(t, "reader", "c", "sh", "-c", fmt.Sprintf(put, "evil", 0))
	require.Error(t, err, out)
	assert.Contains(t, out+fmt.Sprint(err), "Operation not permitted")
	assert.Equal(t, "b"[0], strings.TrimSpace(s.Exec(t, "reader", "c", "ls", "-l", "/dev/disk"))[0], "a block device")
	image, err := os.ReadFile(filepath.Join(d.Dir, "volumes", "one", "image"))
	require.NoError(t, err)
	assert.Equal(t, "initsidemain", string(image[:12]))
	devices := loopsOf(s.Dir)
	assert.NotEmpty(t, devices)
	for device := range devices {
		owner, err := os.Stat(device)
		require.NoError(t, err)
		assert.EqualValues(t, 0, owner.Sys().(*syscall.Stat_t).Gid, "the fsGroup has not got %s", device)
	}

	s.agent.Kill(t)
	s.agent.Start(t)
	s.awaitNode(t, nodeReady)
	s.awaitDriver(t, name, true)
	for _, pod := range []string{"writer", "reader", "other"} {
		assert.EqualValues(t, 0, s.await(t, ns, pod, Running).Status.ContainerStatuses[0].RestartCount)
	}
	written()
	s.KillProcess(t, "writer", "c")
	s.await(t, ns, "writer", Running, Restarts("c", 1))
	written()
	assert.Equal(t, "main", s.Exec(t, "writer", "c", get(8)...))

	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "writer", "other", "--wait=false")
	s.awaitGone(t, ns, "writer", "other")
	written()
	assert.Zero(t, csiCalls(t, d, "one")["NodeUnstageVolume"], "another pod uses it")
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "reader", "--wait=false")
	s.awaitGone(t, ns, "reader")
	assert.NoError(t, s.csiLeft())
	s.plane.Kubectl(t, "delete", "persistentvolume", ns+"-one", ns+"-two", "--wait=false")
	s.noSecretsInLog(t)
}
