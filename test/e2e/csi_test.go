package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// csiVolume is a claim that is bound to a volume of a CSI driver.
func csiVolume(ns, name, driver, handle, mode, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s-%[2]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [%[5]s]
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: %[1]s, name: %[2]s}
  csi: {driver: %[3]s, volumeHandle: %[4]s}
  persistentVolumeReclaimPolicy: Retain
  %[6]s
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  storageClassName: ""
  volumeName: %[1]s-%[2]s
  accessModes: [%[5]s]
  resources: {requests: {storage: 1Gi}}
  %[6]s
`, ns, name, driver, handle, mode, more)
}

// csiCalls returns the successful calls of a driver for a volume, by method.
func csiCalls(t *testing.T, d *CSIDriver, volume string) map[string]int {
	t.Helper()
	calls, err := d.Calls(t.Context())
	require.NoError(t, err)
	out := map[string]int{}
	for _, c := range calls {
		if c.Done && c.Code == 0 && c.VolumeID() == volume {
			_, method, _ := strings.Cut(c.Method, "/csi.v1.Node/")
			out[cmpOr(method, c.Method)]++
		}
	}
	return out
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// startCSI starts a driver that is a plugin of the node, and waits until it is published.
func startCSI(t *testing.T, s *nodeSuite, name, object string, flags ...string) *CSIDriver {
	t.Helper()
	s.plane.Apply(t, fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: %s}\nspec: %s\n", name,
		object))
	d := StartCSIDriver(t, s.Net, filepath.Join(s.Dir, name), append([]string{"-name", name, "-node-id", NodeName,
		"-registry", filepath.Join(s.agent.Root, "plugins_registry")}, flags...)...)
	s.awaitDriver(t, name, true)
	return d
}

// awaitDriver waits until the CSINode object has the driver, or has it no more.
func (s *nodeSuite) awaitDriver(t *testing.T, name string, published bool) {
	t.Helper()
	Eventually(t, eventually, "driver "+name+" in the CSINode object", func() error {
		object, err := s.plane.Client.StorageV1().CSINodes().Get(t.Context(), NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, d := range object.Spec.Drivers {
			if d.Name == name == published {
				return nil
			}
		}
		if !published {
			return nil
		}
		return fmt.Errorf("drivers %+v", object.Spec.Drivers)
	})
}

// A CSI driver without a controller: volumes that pods share, in the spec of a pod, and over the end of the agent and
// of the driver.
func TestCSI(t *testing.T) {
	t.Parallel()
	Need(t)
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	const name = "dirs.example.com"
	d := startCSI(t, s, name, "{attachRequired: false, podInfoOnMount: true, fsGroupPolicy: File, "+
		"volumeLifecycleModes: [Persistent, Ephemeral]}", "-controller-capabilities=", "-volume=shared=1073741824",
		"-volume=single=1073741824")
	ns := s.plane.Namespace(t, "csi")
	s.plane.Apply(t, csiVolume(ns, "shared", name, "shared", "ReadWriteMany", "volumeMode: Filesystem"))
	s.plane.Apply(t, csiVolume(ns, "single", name, "single", "ReadWriteOncePod", "volumeMode: Filesystem"))

	web, db := withClaim("web", "shared"), withClaim("db", "shared")
	group := int64(4242)
	for _, p := range []*v1.Pod{web, db} {
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	}
	inline := withClaim("inline", "")
	inline.Spec.Volumes[0].VolumeSource = v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: name,
		VolumeAttributes: map[string]string{"size": "1"}}}
	first, second := withClaim("first", "single"), withClaim("second", "single")
	second.Spec.NodeName = NodeName // the scheduler does not bind it
	s.create(t, ns, web, db, inline, first)
	for _, pod := range []string{"web", "db", "inline", "first"} {
		s.await(t, ns, pod, Running)
	}
	s.create(t, ns, second)
	calls := csiCalls(t, d, "shared")
	assert.Equal(t, 1, calls["NodeStageVolume"], "%v", calls)
	assert.Equal(t, 2, calls["NodePublishVolume"], "%v", calls)
	Eventually(t, eventually, "an event about the second pod of a volume for one pod", func() error {
		if out := s.plane.Kubectl(t, "get", "-n", ns, "events"); !strings.Contains(out,
			"volume uses the ReadWriteOncePod access mode and is already in use by another pod") {
			return errors.New(out)
		}
		return nil
	})

	s.agent.Kill(t)
	s.agent.Start(t)
	s.awaitNode(t, nodeReady)
	for _, pod := range []string{"web", "db", "inline", "first"} {
		assert.EqualValues(t, 0, s.await(t, ns, pod, Running).Status.ContainerStatuses[0].RestartCount)
	}

	// The driver is away: what runs goes on, and the end of a pod waits for it.
	d.Kill(t)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "first", "--wait=false")
	d.Start(t)
	s.awaitGone(t, ns, "first")
	s.await(t, ns, "second", Running)

	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "web")
	s.awaitGone(t, ns, "web")
	assert.Zero(t, csiCalls(t, d, "shared")["NodeUnstageVolume"], "another pod uses it")
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "db", "inline", "second", "--wait=false")
	s.awaitGone(t, ns, "db", "inline", "second")
	s.agent.AwaitNoPodDirs(t, within)
	assert.Equal(t, 1, csiCalls(t, d, "shared")["NodeUnstageVolume"])
	left, err := filepath.Glob(filepath.Join(s.agent.Root, "plugins", "kubernetes.io", "csi", name, "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	s.plane.Kubectl(t, "delete", "persistentvolume", ns+"-shared", ns+"-single", "--wait=false")
	s.noSecretsInLog(t)
}
