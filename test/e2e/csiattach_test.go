package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// inject adds a fault to the driver. The function that it returns removes the fault.
func inject(t *testing.T, d *CSIDriver, f csidriver.Fault) (remove func()) {
	t.Helper()
	end, err := d.Inject(t.Context(), f)
	require.NoError(t, err)
	return func() {
		t.Helper()
		require.NoError(t, end(t.Context()))
	}
}

// awaitCall waits until the driver has received n calls of a method for a volume.
func awaitCall(t *testing.T, d *CSIDriver, method, volume string, n int) {
	t.Helper()
	Eventually(t, eventually, fmt.Sprintf("call %d of %s for %s", n, method, volume), func() error {
		if got := received(t, d, method, volume); got < n {
			return fmt.Errorf("there are %d calls", got)
		}
		return nil
	})
}

// received returns how many calls of a method for a volume the driver has received, answered or not.
func received(t *testing.T, d *CSIDriver, method, volume string) (n int) {
	t.Helper()
	calls, err := d.Calls(t.Context())
	require.NoError(t, err)
	for _, c := range calls {
		if c.Method == method && c.VolumeID() == volume {
			n++
		}
	}
	return n
}

// awaitEvent waits for an event of the pod with all texts in its reason and message.
func (s *nodeSuite) awaitEvent(t *testing.T, namespace, pod string, texts ...string) {
	t.Helper()
	Eventually(t, eventually, fmt.Sprintf("event %q of pod %s", texts, pod), func() error {
		events, err := s.plane.Client.CoreV1().Events(namespace).List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return err
		}
		var all []string
		for i := range events.Items {
			text := events.Items[i].Reason + ": " + events.Items[i].Message
			all = append(all, text)
			if !slices.ContainsFunc(texts, func(part string) bool { return !strings.Contains(text, part) }) {
				return nil
			}
		}
		return errors.New(strings.Join(all, "\n"))
	})
}

// awaitVolumes waits until the node has the volume among those in use and among those attached, or has not.
func (s *nodeSuite) awaitVolumes(t *testing.T, volume v1.UniqueVolumeName, inUse, attached bool) {
	t.Helper()
	s.awaitNode(t, func(node *v1.Node) error {
		isAttached := slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool {
			return a.Name == volume
		})
		if slices.Contains(node.Status.VolumesInUse, volume) != inUse || isAttached != attached {
			return fmt.Errorf("in use %v, attached %v", node.Status.VolumesInUse, node.Status.VolumesAttached)
		}
		return nil
	})
}

// attachments returns how many VolumeAttachments there are.
func (s *nodeSuite) attachments(t *testing.T) int {
	t.Helper()
	list, err := s.plane.Client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return len(list.Items)
}

// A driver whose volumes are attached, by the controller manager and the external-attacher. A volume is in use from
// before it is attached until it is unstaged, whatever happens to the agent; what has been attached can be used without
// the API server.
func TestCSIAttach(t *testing.T) {
	t.Parallel()
	Need(t)
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	const name, volume = "disks.example.com", v1.UniqueVolumeName("kubernetes.io/csi/disks.example.com^disk")
	d := startCSI(t, s, name, "{attachRequired: true, fsGroupPolicy: File}", "-volume=disk=1073741824")
	s.plane.StartAttacher(t, d.Socket)
	ns := s.plane.Namespace(t, "csi")
	s.plane.Apply(t, csiVolume(ns, "disk", name, "disk", "ReadWriteOnce", "volumeMode: Filesystem"))

	// The attachment fails, and then takes a while.
	fails := inject(t, d, csidriver.Fault{Method: "ControllerPublishVolume", Code: codes.Internal,
		Message: "the disk is on fire"})
	pod := withClaim("web", "disk")
	pod.Spec.Containers[0].Command[2] = "echo started >> /data/log; " + Forever
	s.create(t, ns, pod)
	s.awaitEvent(t, ns, "web", "FailedAttachVolume", "the disk is on fire")
	s.awaitEvent(t, ns, "web", "FailedMount", "volume not attached according to node status")
	s.awaitVolumes(t, volume, true, false)
	hangs := inject(t, d, csidriver.Fault{Method: "ControllerPublishVolume", Hang: true})
	tried := received(t, d, "ControllerPublishVolume", "disk")
	fails()
	awaitCall(t, d, "ControllerPublishVolume", "disk", tried+1)
	s.awaitVolumes(t, volume, true, false)
	assert.Zero(t, received(t, d, "NodeStageVolume", "disk"), "before it is attached")
	staging := inject(t, d, csidriver.Fault{Method: "NodeStageVolume", Hang: true})
	hangs()
	awaitCall(t, d, "NodeStageVolume", "disk", 1)
	s.awaitVolumes(t, volume, true, true)
	staging()
	s.await(t, ns, "web", Running)

	// The agent is killed. No version of the node object is without the volume.
	watch, err := s.plane.Client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	kept := make(chan string, 1) // has the result when the watch has ended
	go func() {
		lost := ""
		for event := range watch.ResultChan() {
			if node, ok := event.Object.(*v1.Node); ok && !slices.Contains(node.Status.VolumesInUse, volume) {
				lost = fmt.Sprintf("version %s has %v", node.ResourceVersion, node.Status.VolumesInUse)
			}
		}
		kept <- lost
	}()
	s.agent.Kill(t)
	s.agent.Start(t)
	s.awaitNode(t, nodeReady)
	assert.EqualValues(t, 0, s.await(t, ns, "web", Running).Status.ContainerStatuses[0].RestartCount)
	s.awaitDriver(t, name, true)

	// The API server is away: containers are restarted, by this agent and by the next one.
	s.awaitCheckpoint(t, map[string][]string{"state": {`"attached":true`}})
	s.plane.KillAPIServer(t)
	watch.Stop()
	assert.Empty(t, <-kept)
	s.KillProcess(t, "web", "c")
	s.awaitReported(t, ns, "web", Running, Restarts("c", 1))
	s.agent.Kill(t)
	s.KillProcess(t, "web", "c")
	s.agent.Start(t)
	s.awaitReported(t, ns, "web", Running, Restarts("c", 2))
	Eventually(t, eventually, "the data of three starts", func() error {
		if out := s.Exec(t, "web", "c", "cat", "/data/log"); strings.Count(out, "started") != 3 {
			return errors.New(out)
		}
		return nil
	})
	s.plane.StartAPIServer(t)
	s.awaitNode(t, nodeReady)
	s.await(t, ns, "web", Running, Restarts("c", 2))

	// The end: the volume is in use, and attached, until it is unstaged.
	unstaging := inject(t, d, csidriver.Fault{Method: "NodeUnstageVolume", Hang: true})
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "web", "--wait=false")
	awaitCall(t, d, "NodeUnstageVolume", "disk", 1)
	s.awaitVolumes(t, volume, true, true)
	assert.Zero(t, received(t, d, "ControllerUnpublishVolume", "disk"), "while it is staged")
	began := time.Now()
	unstaging()
	s.awaitGone(t, ns, "web")
	s.awaitVolumes(t, volume, false, false)
	Eventually(t, eventually, "no attachment", func() error {
		if n := s.attachments(t); n > 0 {
			return fmt.Errorf("%d attachments", n)
		}
		return nil
	})
	t.Logf("detached %v after the volume was unstaged", time.Since(began))
	assert.Less(t, time.Since(began), 5*time.Minute, "the controller detaches after 6 min, also what is in use")
	assert.Equal(t, 1, received(t, d, "ControllerUnpublishVolume", "disk"))

	// The next pod, and the volume is attached again.
	s.create(t, ns, withClaim("next", "disk"))
	s.await(t, ns, "next", Running)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "next", "--wait=false")
	s.awaitGone(t, ns, "next")
	s.awaitVolumes(t, volume, false, false)

	// A pod that ends while it waits for the attachment does not keep the volume in use.
	hangs = inject(t, d, csidriver.Fault{Method: "ControllerPublishVolume", Hang: true})
	tried = received(t, d, "ControllerPublishVolume", "disk")
	s.create(t, ns, withClaim("waits", "disk"))
	awaitCall(t, d, "ControllerPublishVolume", "disk", tried+1)
	s.awaitVolumes(t, volume, true, false)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "waits", "--wait=false")
	s.awaitGone(t, ns, "waits")
	s.awaitVolumes(t, volume, false, false)
	hangs()
	Eventually(t, eventually, "no attachment", func() error {
		if n := s.attachments(t); n > 0 {
			return fmt.Errorf("%d attachments", n)
		}
		return nil
	})
	s.awaitVolumes(t, volume, false, false)
	left, err := filepath.Glob(filepath.Join(s.agent.Root, "plugins", "kubernetes.io", "csi", name, "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	s.plane.Kubectl(t, "delete", "persistentvolume", ns+"-disk", "--wait=false")
	s.noSecretsInLog(t)
}
