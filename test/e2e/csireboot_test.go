package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// loseMounts does to the volumes of the driver what the end of the node does.
func (s *nodeSuite) loseMounts(t *testing.T, d *CSIDriver) {
	t.Helper()
	for device, file := range loopsOf(s.Dir) {
		f, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.IoctlSetInt(f, unix.LOOP_CLR_FD, 0), "%s of %s", device, file)
		require.NoError(t, unix.Close(f))
	}
	for _, dir := range []string{s.agent.Root, d.Dir} {
		for _, point := range slices.Backward(mountsIn(t, dir)) {
			require.NoError(t, unix.Unmount(point, unix.MNT_DETACH), point)
		}
	}
}

// The node is rebooted, and its API server is away. The volumes that were attached are staged and published again
// before the containers start.
func TestCSIReboot(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	const name = "rebooted.example.com"
	d := startCSI(t, s, name, "{attachRequired: true, podInfoOnMount: true, volumeLifecycleModes: [Persistent, "+
		"Ephemeral]}", "-volume=files=1073741824", "-volume=disk=1048576")
	s.plane.StartAttacher(t, d.Socket)
	ns := s.plane.Namespace(t, "csi")
	s.plane.Apply(t, csiVolume(ns, "files", name, "files", "ReadWriteOnce", "volumeMode: Filesystem"))
	s.plane.Apply(t, csiVolume(ns, "disk", name, "disk", "ReadWriteOnce", "volumeMode: Block"))
	files, disk, inline := withClaim("files", "files"), withDevice("disk", "disk", false), withClaim("inline", "")
	files.Spec.Containers[0].Command[2] = "echo started >> /data/log; " + Forever
	disk.Spec.Containers[0].Command[2] = "dd if=/dev/disk bs=4 count=1 | grep disk || printf disk > /dev/disk; " + Forever
	inline.Spec.Volumes[0].VolumeSource = v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: name}}
	pods := []string{"files", "disk", "inline"}
	s.create(t, ns, files, disk, inline)
	for _, pod := range pods {
		s.await(t, ns, pod, Running)
	}
	s.awaitCheckpoint(t, map[string][]string{"state": {`"attached":true`}})

	s.plane.KillAPIServer(t)
	s.agent.Kill(t)
	d.Kill(t)
	s.Reboot(t)
	s.loseMounts(t, d)
	s.agent.Start(t)
	d.Start(t)
	for _, pod := range pods {
		s.awaitReported(t, ns, pod, Running, Restarts("c", 1))
	}
	assert.Equal(t, 2, strings.Count(s.Exec(t, "files", "c", "cat", "/data/log"), "started"))
	assert.Equal(t, "disk", s.Exec(t, "disk", "c", "dd", "if=/dev/disk", "bs=4", "count=1", "status=none"))

	s.plane.StartAPIServer(t)
	s.awaitNode(t, nodeReady)
	for _, pod := range pods {
		s.await(t, ns, pod, Running, Restarts("c", 1))
	}
	s.plane.Kubectl(t, append([]string{"delete", "-n", ns, "pod", "--wait=false"}, pods...)...)
	s.awaitGone(t, ns, pods...)
	for _, volume := range []v1.UniqueVolumeName{"files", "disk"} {
		s.awaitVolumes(t, "kubernetes.io/csi/"+name+"^"+volume, false, false)
	}
	assert.NoError(t, s.csiLeft())
	s.plane.Kubectl(t, "delete", "persistentvolume", ns+"-files", ns+"-disk", "--wait=false")
}
