package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// csiFaults are tests of one driver, each with volumes of its own.
type csiFaults struct {
	*nodeSuite
	*CSIDriver
	name string
}

// claim makes a volume with a claim, of the name.
func (f *csiFaults) claim(t *testing.T, ns, name string) {
	t.Helper()
	require.NoError(t, f.AddVolume(t.Context(), name, 1<<30))
	f.plane.Apply(t, csiVolume(ns, name, f.name, name, "ReadWriteMany", "volumeMode: Filesystem"))
	t.Cleanup(func() { f.plane.Kubectl(t, "delete", "persistentvolume", ns+"-"+name, "--wait=false") })
}

// delete deletes pods without waiting for their end.
func (f *csiFaults) delete(t *testing.T, ns string, pods ...string) {
	t.Helper()
	f.plane.Kubectl(t, append([]string{"delete", "-n", ns, "pod", "--wait=false"}, pods...)...)
}

// Faults of a driver, and of what happens to pods meanwhile. In the end nothing is left, and no rule of CSI was
// violated.
func TestCSIFaults(t *testing.T) {
	t.Parallel()
	Need(t)
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	const name = "faults.example.com"
	f := &csiFaults{nodeSuite: s, name: name}
	f.CSIDriver = startCSI(t, s, name, "{attachRequired: false, fsGroupPolicy: File}", "-controller-capabilities=")
	for _, test := range []struct {
		name string
		run  func(*testing.T, *csiFaults, string)
	}{
		{"Hang", testCSIHang}, {"KilledInStage", testCSIKilledInStage}, {"Upgrade", testCSIUpgrade},
		{"DeleteWhileStaging", testCSIDeleteWhileStaging}, {"ForceDelete", testCSIForceDelete}, {"Busy", testCSIBusy},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, f, s.plane.Namespace(t, strings.ToLower(test.name))) })
	}
	s.agent.AwaitNoPodDirs(t, within)
	Eventually(t, eventually, "nothing is left", s.csiLeft)
	s.noSecretsInLog(t)
}

// A driver hangs: pods without its volumes, and those with others of its volumes, start as before.
func testCSIHang(t *testing.T, f *csiFaults, ns string) {
	f.claim(t, ns, "stuck")
	f.claim(t, ns, "well")
	start := func(n string) time.Duration {
		began := time.Now()
		f.create(t, ns, MakePod("plain-"+n, Main(Sh("c", Forever))), withClaim("well-"+n, "well"))
		f.await(t, ns, "plain-"+n, Running)
		f.await(t, ns, "well-"+n, Running)
		return time.Since(began)
	}
	before := start("before")
	release := inject(t, f.CSIDriver, csidriver.Fault{Method: "NodePublishVolume", VolumeID: "stuck", Hang: true})
	f.create(t, ns, withClaim("stuck", "stuck"))
	awaitCall(t, f.CSIDriver, "NodePublishVolume", "stuck", 1)
	beside := start("beside")
	t.Logf("pods started in %v, and in %v beside a driver that hangs", before, beside)
	assert.Less(t, beside, 3*before+5*time.Second)
	f.delete(t, ns, "plain-before", "well-before", "plain-beside", "well-beside")
	f.awaitGone(t, ns, "plain-before", "well-before", "plain-beside", "well-beside")
	assert.Equal(t, 1, received(t, f.CSIDriver, "NodePublishVolume", "stuck"), "one call at a time")
	release()
	f.await(t, ns, "stuck", Running)
	f.delete(t, ns, "stuck")
	f.awaitGone(t, ns, "stuck")
}

// The driver ends after it has staged a volume and before it answers. The volume is staged again.
func testCSIKilledInStage(t *testing.T, f *csiFaults, ns string) {
	f.claim(t, ns, "killed")
	inject(t, f.CSIDriver, csidriver.Fault{Method: "NodeStageVolume", VolumeID: "killed", Exit: true})
	f.create(t, ns, withClaim("killed", "killed"))
	select {
	case <-f.Ended():
	case <-time.After(eventually):
		t.Fatal("the driver has not ended")
	}
	f.awaitEvent(t, ns, "killed", "FailedMount", "MountVolume.MountDevice failed")
	f.Start(t)
	f.await(t, ns, "killed", Running)
	f.delete(t, ns, "killed")
	f.awaitGone(t, ns, "killed")
}

// A driver is replaced by one at another socket, under pods that run. Its new version takes their volumes down.
func testCSIUpgrade(t *testing.T, f *csiFaults, ns string) {
	f.claim(t, ns, "upgraded")
	f.create(t, ns, withClaim("old", "upgraded"))
	old := f.await(t, ns, "old", Running)
	f.Stop(t)
	f.awaitDriver(t, f.name, false)
	socket := filepath.Join(filepath.Dir(f.Socket), "v2.sock")
	f.Start(t, "-socket", socket)
	f.awaitDriver(t, f.name, true)
	_, err := os.Stat(f.Socket)
	assert.ErrorIs(t, err, os.ErrNotExist, "the old socket")
	f.create(t, ns, withClaim("new", "upgraded"))
	f.await(t, ns, "new", Running)
	calls := csiCalls(t, f.CSIDriver, "upgraded")
	assert.Zero(t, calls["NodeUnpublishVolume"], "%v", calls)
	again := f.await(t, ns, "old", Running)
	assert.Equal(t, old.Status.ContainerStatuses[0].ContainerID, again.Status.ContainerStatuses[0].ContainerID)
	assert.Contains(t, f.Exec(t, "old", "c", "cat", "/data/file"), "new")
	f.delete(t, ns, "old", "new")
	f.awaitGone(t, ns, "old", "new")
	f.Stop(t)
	f.Start(t)
	f.awaitDriver(t, f.name, true)
}

// A pod is deleted while its volume is being staged. The volume is unstaged after that, and a pod after it has it
// staged again.
func testCSIDeleteWhileStaging(t *testing.T, f *csiFaults, ns string) {
	f.claim(t, ns, "staging")
	release := inject(t, f.CSIDriver, csidriver.Fault{Method: "NodeStageVolume", VolumeID: "staging", Hang: true,
		Late: true})
	f.create(t, ns, withClaim("deleted", "staging"))
	awaitCall(t, f.CSIDriver, "NodeStageVolume", "staging", 1)
	f.delete(t, ns, "deleted")
	f.await(t, ns, "deleted", func(pod *v1.Pod) error {
		if pod.DeletionTimestamp == nil {
			return errors.New("not deleted")
		}
		return nil
	})
	release()
	f.awaitGone(t, ns, "deleted")
	assert.NoError(t, f.csiLeft())
	f.create(t, ns, withClaim("after", "staging"))
	f.await(t, ns, "after", Running)
	f.delete(t, ns, "after")
	f.awaitGone(t, ns, "after")
}

// A pod is deleted without a grace period while the driver refuses to unpublish its volume. The object is gone at once,
// and the volume is taken down when the driver permits it.
func testCSIForceDelete(t *testing.T, f *csiFaults, ns string) {
	f.claim(t, ns, "forced")
	f.create(t, ns, withClaim("forced", "forced"))
	pod := f.await(t, ns, "forced", Running)
	allow := inject(t, f.CSIDriver, csidriver.Fault{Method: "NodeUnpublishVolume", VolumeID: "forced",
		Code: codes.Internal, Message: "not yet"})
	f.plane.Kubectl(t, "delete", "-n", ns, "pod", "forced", "--grace-period=0", "--force")
	Eventually(t, within, "no object", func() error { return f.plane.NoPod(ns, "forced") })
	awaitCall(t, f.CSIDriver, "NodeUnpublishVolume", "forced", 2)
	assert.NoError(t, f.noRunning(t, "forced"))
	assert.Error(t, f.agent.LeftOf(f.Cluster, string(pod.UID)), "while it is published")
	assert.Zero(t, received(t, f.CSIDriver, "NodeUnstageVolume", "forced"))
	// A pod of the same name is another pod.
	f.create(t, ns, withClaim("forced", "forced"))
	again := f.await(t, ns, "forced", Running)
	assert.NotEqual(t, pod.UID, again.UID)
	allow()
	Eventually(t, eventually, "the first pod is gone", func() error {
		return f.agent.LeftOf(f.Cluster, string(pod.UID))
	})
	assert.Zero(t, received(t, f.CSIDriver, "NodeUnstageVolume", "forced"), "the second pod uses it")
	assert.NotEmpty(t, f.Exec(t, "forced", "c", "cat", "/data/file"))
	f.delete(t, ns, "forced")
	f.awaitGone(t, ns, "forced")
}

// Somebody on the node uses the volume when the pod ends. It is taken down when it is free; until then it stays staged.
func testCSIBusy(t *testing.T, f *csiFaults, ns string) {
	f.claim(t, ns, "busy")
	f.create(t, ns, withClaim("busy", "busy"))
	pod := f.await(t, ns, "busy", Running)
	dir := filepath.Join(f.agent.Root, "pods", string(pod.UID), "volumes/kubernetes.io~csi", ns+"-busy", "mount")
	user, err := os.Open(filepath.Join(dir, "file"))
	require.NoError(t, err)
	f.delete(t, ns, "busy")
	awaitCall(t, f.CSIDriver, "NodeUnpublishVolume", "busy", 2)
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &st))
	assert.Zero(t, received(t, f.CSIDriver, "NodeUnstageVolume", "busy"))
	object, err := f.plane.Client.CoreV1().Pods(ns).Get(t.Context(), "busy", metav1.GetOptions{})
	require.NoError(t, err, "the object stays")
	assert.NotNil(t, object.DeletionTimestamp)
	f.claim(t, ns, "free")
	f.create(t, ns, withClaim("free", "free"))
	f.await(t, ns, "free", Running)
	require.NoError(t, user.Close())
	f.awaitGone(t, ns, "busy")
	f.delete(t, ns, "free")
	f.awaitGone(t, ns, "free")
}
