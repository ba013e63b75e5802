package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// A volume is expanded on the node while a pod uses it, when the claim says that its storage was expanded. The test is
// the controller that expands it. A size that the driver refuses is left to the controller.
func TestCSIExpand(t *testing.T) {
	t.Parallel()
	Need(t)
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	const name = "grow.example.com"
	d := startCSI(t, s, name, "{attachRequired: false}", "-controller-capabilities=", "-volume=grows=1073741824",
		"-volume=stays=1073741824",
		`-fault={"method":"NodeExpandVolume","volumeID":"stays","code":11,"message":"too large"}`)
	ns := s.plane.Namespace(t, "expand")
	var pods []*v1.Pod
	for _, volume := range []string{"grows", "stays"} {
		s.plane.Apply(t, csiVolume(ns, volume, name, volume, "ReadWriteOnce", "volumeMode: Filesystem"))
		pods = append(pods, withClaim(volume, volume))
	}
	s.create(t, ns, pods...)
	for _, volume := range []string{"grows", "stays"} {
		s.await(t, ns, volume, Running)
		s.plane.Kubectl(t, "patch", "-n", ns, "persistentvolumeclaim", volume, "--subresource=status", "-p",
			`{"status": {"allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"},
			"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}}`)
	}
	claim := func(name string) *v1.PersistentVolumeClaim {
		claim, err := s.plane.Client.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claim
	}
	Eventually(t, 3*time.Minute, "the status of the claims", func() error {
		grows, stays := claim("grows").Status, claim("stays").Status
		pending := slices.ContainsFunc(grows.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return c.Type == v1.PersistentVolumeClaimFileSystemResizePending
		})
		if grows.Capacity.Storage().String() != "2Gi" || len(grows.AllocatedResourceStatuses) > 0 || pending {
			return fmt.Errorf("grows: %+v", grows)
		}
		if stays.AllocatedResourceStatuses[v1.ResourceStorage] != v1.PersistentVolumeClaimNodeResizeInfeasible {
			return fmt.Errorf("stays: %+v", stays)
		}
		return nil
	})
	assert.Equal(t, "1Gi", claim("stays").Status.Capacity.Storage().String())
	assert.Equal(t, 1, csiCalls(t, d, "grows")["NodeExpandVolume"])
	Eventually(t, eventually, "events of the pods", func() error {
		out := s.plane.Kubectl(t, "get", "-n", ns, "events")
		for _, want := range []string{"FileSystemResizeSuccessful", "VolumeResizeFailed", "too large"} {
			if !strings.Contains(out, want) {
				return errors.New(out)
			}
		}
		return nil
	})
	for _, volume := range []string{"grows", "stays"} {
		assert.EqualValues(t, 0, s.await(t, ns, volume, Running).Status.ContainerStatuses[0].RestartCount)
	}
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "grows", "stays")
	s.awaitGone(t, ns, "grows", "stays")
	s.plane.Kubectl(t, "delete", "persistentvolume", ns+"-grows", ns+"-stays", "--wait=false")
}
