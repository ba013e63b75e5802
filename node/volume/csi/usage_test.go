package csi_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The usage of volumes is that of the driver, or that of the file system if the driver has none.
func TestVolumeStats(t *testing.T) {
	for _, reports := range []bool{true, false} {
		opts := csidriver.Options{}
		if !reports {
			if os.Geteuid() != 0 {
				continue // links are no mounts
			}
			opts.NodeCapabilities = without(csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS)
		}
		r := newRig(t, opts)
		r.add("data")
		r.add("raw", block)
		r.add("other")
		pod := r.pod("web", "data", "raw")
		r.use(pod, r.inline("scratch"))
		ready := r.mustSetUp(pod)
		require.NoError(t, os.WriteFile(filepath.Join(ready["data"].HostPath, "file"), make([]byte, 5000), 0o600))
		r.use(pod, v1.Volume{Name: "other", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "other"}}}) // is not set up
		if reports {
			remove := r.driver.Inject(csidriver.Fault{Method: "NodeGetVolumeStats", Code: codes.Internal})
			_, err := r.manager.VolumeStats(t.Context(), pod, r.podDir(pod))
			assert.ErrorContains(t, err, `volume "data" of pod default/web`)
			remove()
			r.driver.ForgetCalls()
		}
		stats, err := r.manager.VolumeStats(t.Context(), pod, r.podDir(pod))
		require.NoError(t, err)
		var names []string
		for _, s := range stats {
			names = append(names, s.Name)
			assert.Positive(t, *s.CapacityBytes, s.Name)
			assert.Equal(t, s.Name != "scratch", s.PVCRef != nil)
			assert.False(t, s.Time.IsZero())
		}
		if reports {
			assert.Equal(t, []string{"data", "raw", "scratch"}, names)
			assert.EqualValues(t, 1<<20, *stats[0].CapacityBytes)
			assert.EqualValues(t, 5000, *stats[0].UsedBytes)
			again, err := r.manager.VolumeStats(t.Context(), pod, r.podDir(pod))
			require.NoError(t, err)
			assert.Equal(t, stats, again)
			assert.Equal(t, 3, csidriver.Count(r.driver.Calls(), "NodeGetVolumeStats"), "once for each volume")
		} else {
			assert.Equal(t, []string{"data", "scratch"}, names, "a device has no file system")
		}
		r.mustRemove(pod)
		stats, err = r.manager.VolumeStats(t.Context(), pod, r.podDir(pod))
		assert.NoError(t, err)
		assert.Empty(t, stats)
		r.isClean()
	}
}

func TestExpand(t *testing.T) {
	for _, isBlock := range []bool{false, true} {
		r := linked(t)
		r.cluster.addSecret("secrets", "expand", map[string]string{"key": secret})
		pv := r.add("data", func(pv *v1.PersistentVolume) {
			pv.Spec.CSI.NodeExpandSecretRef = &v1.SecretReference{Namespace: "secrets", Name: "expand"}
		})
		if isBlock {
			block(pv)
		}
		pod := r.pod("web", "data")
		r.mustSetUp(pod)
		larger := pv.DeepCopy()
		larger.Spec.Capacity = v1.ResourceList{"storage": resource.MustParse("2Mi")}
		require.NoError(t, r.driver.AddVolume("handle-data", 2<<20)) // the controller
		req := volume.PersistentRequest{Pod: pod, Volume: larger, Block: isBlock,
			Place: volume.PlaceOf(r.podDir(pod), csi.Name, "data")}
		require.NoError(t, r.plugin.Expand(t.Context(), req))
		call := request[*csipb.NodeExpandVolumeRequest](r, "NodeExpandVolume")
		publish := request[*csipb.NodePublishVolumeRequest](r, "NodePublishVolume")
		assert.Equal(t, map[string]string{"key": secret}, call.Secrets)
		assert.Equal(t, publish.TargetPath, call.VolumePath)
		assert.Equal(t, publish.StagingTargetPath, call.StagingTargetPath)
		assert.Equal(t, isBlock, call.VolumeCapability.GetBlock() != nil)
		assert.EqualValues(t, 2<<20, call.CapacityRange.RequiredBytes)

		for code, want := range map[codes.Code]error{codes.FailedPrecondition: volume.ErrInUse,
			codes.OutOfRange: volume.ErrInfeasible, codes.PermissionDenied: volume.ErrFinal, codes.Unavailable: nil} {
			remove := r.driver.Inject(csidriver.Fault{Method: "NodeExpandVolume", Code: code, Message: "too busy"})
			err := r.plugin.Expand(t.Context(), req)
			assert.ErrorContains(t, err, fmt.Sprintf("rpc error: code = %v desc = too busy", code))
			for _, class := range []error{volume.ErrInUse, volume.ErrInfeasible, volume.ErrFinal} {
				assert.Equal(t, class == want, errors.Is(err, class), "%v is %v", code, class)
			}
			remove()
		}
		r.opts.NodeCapabilities = without(csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
		r.restartDriver()
		assert.ErrorIs(t, r.plugin.Expand(t.Context(), req), volume.ErrUnsupported)
		r.mustRemove(pod)
		r.isClean()
	}
}

// Measurements have the names of kubelet.
func TestMeasurements(t *testing.T) {
	r := linked(t)
	r.add("data")
	pod := r.pod("web", "data")
	r.use(pod, r.inline("scratch"))
	name := "kubernetes.io/csi:" + csidriver.DefaultName
	r.driver.Inject(csidriver.Fault{Method: "NodeUnpublishVolume", VolumeID: "handle-data", Code: codes.Internal, Times: 1})
	r.mustSetUp(pod)
	require.Error(t, r.remove(pod))
	r.mustRemove(pod)
	var setUps, tearDowns, methods []string
	var volumes []volume.PodVolumes
	require.Eventually(t, func() bool { // they are delivered in the background
		setUps, tearDowns, methods, volumes = nil, nil, nil, nil
		for _, m := range r.host.measurements() {
			switch m := m.(type) {
			case volume.SetUpCall:
				setUps = append(setUps, m.Plugin)
			case volume.TearDownCall:
				tearDowns = append(tearDowns, m.Plugin)
			case volume.PodVolumes:
				volumes = append(volumes, m)
			case volume.DriverCall:
				methods = append(methods, m.Method+" "+m.Code)
			}
		}
		return len(volumes) == 3
	}, 10*time.Second, time.Millisecond)
	assert.Equal(t, []string{name, name}, setUps)
	assert.Equal(t, []string{name, name, name}, tearDowns)
	assert.Equal(t, []volume.PodVolumes{
		{Pod: runtime.RefOf(pod), Desired: map[string]int{name: 2}, Actual: map[string]int{name: 2}},
		{Pod: runtime.PodRef{UID: pod.UID}, Actual: map[string]int{name: 1}},
		{Pod: runtime.PodRef{UID: pod.UID}}}, volumes)
	assert.True(t, slices.Contains(methods, "/csi.v1.Node/NodeUnpublishVolume Internal"))
	r.isClean()
}
