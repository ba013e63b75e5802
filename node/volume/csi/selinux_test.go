package csi_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	fileLabel = "system_u:object_r:container_file_t:s0"
	// labelOne is the label of files for the level s0:c1,c2.
	labelOne    = "system_u:object_r:container_file_t:s0:c1,c2"
	contextOne  = `context="` + labelOne + `"`
	labelTwo    = "system_u:object_r:container_file_t:s0:c3,c4"
	levelOne    = "s0:c1,c2"
	levelTwo    = "s0:c3,c4"
	seLinuxName = "kubernetes.io/csi/" + csidriver.DefaultName
)

// labelled is a node with SELinux, and a driver that can mount with a label.
func labelled(t *testing.T, opts csidriver.Options) *rig {
	r := newRig(t, opts)
	r.fileLabel = fileLabel
	r.supportLabels(true)
	r.restart()
	return r
}

func (r *rig) supportLabels(can bool) {
	r.cluster.change(csidriver.DefaultName, func(spec *storagev1.CSIDriverSpec) { spec.SELinuxMount = ptr.To(can) })
}

// podOf is a pod whose processes have the level.
func (r *rig) podOf(name, level string, volumes ...string) *v1.Pod {
	pod := r.pod(name, volumes...)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}}
	return pod
}

func recursive(pod *v1.Pod) *v1.Pod {
	pod.Spec.SecurityContext.SELinuxChangePolicy = ptr.To(v1.SELinuxChangePolicyRecursive)
	return pod
}

// flags returns the mount flags of the calls since the last time, a list for each call.
func (r *rig) flags() (all [][]string) {
	for _, c := range r.driver.Calls() {
		switch req := c.Request.(type) {
		case *csipb.NodeStageVolumeRequest:
			all = append(all, req.VolumeCapability.GetMount().GetMountFlags())
		case *csipb.NodePublishVolumeRequest:
			all = append(all, req.VolumeCapability.GetMount().GetMountFlags())
		}
	}
	r.driver.ForgetCalls()
	return all
}

// labels returns the measurements of SELinux.
func (r *rig) labels() (all []runtime.Measurement) {
	for _, m := range r.host.measurements() {
		switch m.(type) {
		case volume.SELinuxConflict, volume.SELinuxAdmitted:
			all = append(all, m)
		}
	}
	return all
}

// The driver mounts with the label of the pods, and the runtime does not relabel. Another agent mounts with it again,
// and a pod with another label waits until no pod uses the volume.
func TestSELinuxMount(t *testing.T) {
	forEachWay(t, func(t *testing.T, opts csidriver.Options) {
		r := labelled(t, opts)
		r.add("data", func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"noatime"} })
		flags := []string{"noatime", contextOne}
		web, db, other := r.podOf("web", levelOne, "data"), r.podOf("db", levelOne, "data"), r.podOf("other", levelTwo, "data")
		assert.False(t, r.mustSetUp(web)["data"].Relabel)
		assert.Equal(t, [][]string{flags, flags}, r.flags())
		assert.Equal(t, []string{"noatime"}, r.volumes["data"].Spec.MountOptions)
		for _, file := range []string{filepath.Join(r.podDir(web), "volumes/kubernetes.io~csi/data/vol_data.json"),
			filepath.Join(r.root, "plugins/kubernetes.io/csi", r.driver.Name(), sum("handle-data"), "vol_data.json")} {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Contains(t, string(data), `"seLinuxMountContext":"`+labelOne+`"`, "as kubelet has it")
		}
		assert.False(t, r.mustSetUp(db)["data"].Relabel)
		assert.Equal(t, [][]string{flags}, r.flags())
		assert.Equal(t, []runtime.Measurement{volume.SELinuxAdmitted{Plugin: seLinuxName, AccessMode: "RWO"}}, r.labels())

		conflict := func(other *v1.Pod, wanted string) {
			t.Helper()
			_, err := r.setUp(other)
			require.Error(t, err)
			assert.Contains(t, volume.SetUpErrors(err)[0].Message(), `failed to process volumes=[data]: `+
				`conflicting SELinux labels of volume data: "`+labelOne+`" and "`+wanted+`"; the pod with the UID uid-`)
			assert.Contains(t, r.labels(), volume.SELinuxConflict{Plugin: seLinuxName, AccessMode: "RWO", Refused: true})
			assert.Empty(t, r.flags())
			assert.NoDirExists(t, filepath.Join(r.podDir(other), "plugins/kubernetes.io~csi/data"))
			r.mustRemove(other)
		}
		conflict(other, labelTwo)
		conflict(recursive(r.podOf("recursive", levelOne, "data")), "")
		conflict(r.pod("plain", "data"), "")

		r.restart() // what the first pods have is only on disk
		conflict(other, labelTwo)
		r.supportLabels(false)
		assert.False(t, r.mustSetUp(web)["data"].Relabel, "as it is mounted, whatever the driver says now")
		r.supportLabels(true)
		assert.False(t, r.mustSetUp(db)["data"].Relabel)
		assert.Equal(t, [][]string{flags, flags, flags}, r.flags())
		conflict(other, labelTwo)

		r.mustRemove(web)
		conflict(other, labelTwo)
		r.mustRemove(db)
		r.flags()
		assert.False(t, r.mustSetUp(other)["data"].Relabel)
		assert.Equal(t, [][]string{{"noatime", `context="` + labelTwo + `"`}, {"noatime", `context="` + labelTwo + `"`}},
			r.flags())
		r.mustRemove(other)
		r.isClean()
	})
}

// The runtime labels what the driver is not to mount with a label.
func TestWithoutSELinuxMount(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *rig)
		pod    func(r *rig) *v1.Pod
		inline bool
		// second means that a pod with another label may use the volume, too.
		second bool
	}{
		"the driver cannot": {change: func(r *rig) { r.supportLabels(false) }, second: true},
		"the driver is mute": {change: func(r *rig) {
			r.cluster.change(csidriver.DefaultName, func(s *storagev1.CSIDriverSpec) { s.SELinuxMount = nil })
		}, second: true},
		"SELinux is off":   {change: func(r *rig) { r.fileLabel = "" }, second: true},
		"the pod opts out": {pod: func(r *rig) *v1.Pod { return recursive(r.podOf("web", levelOne, "data")) }},
		"no level":         {pod: func(r *rig) *v1.Pod { return r.podOf("web", "", "data") }},
		"inline": {inline: true, pod: func(r *rig) *v1.Pod {
			pod := r.podOf("web", levelOne)
			r.use(pod, r.inline("data"))
			return pod
		}},
		"without the gate": {change: func(r *rig) { r.onlyOncePod = true }, second: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := labelled(t, csidriver.Options{Links: true})
			if tc.change != nil {
				tc.change(r)
				r.restart()
			}
			r.add("data")
			pod := r.podOf("web", levelOne, "data")
			if tc.pod != nil {
				pod = tc.pod(r)
			}
			assert.True(t, r.mustSetUp(pod)["data"].Relabel)
			second := r.podOf("second", levelTwo, "data")
			if tc.second {
				assert.True(t, r.mustSetUp(second)["data"].Relabel)
			} else if !tc.inline {
				_, err := r.setUp(second)
				assert.ErrorContains(t, err, `conflicting SELinux labels of volume data: "" and "`+labelTwo+`"`)
				second = recursive(r.podOf("second", levelTwo, "data"))
				assert.True(t, r.mustSetUp(second)["data"].Relabel, "the labels of both are empty")
			}
			for _, flags := range r.flags() {
				assert.Empty(t, flags)
			}
			if name == "without the gate" {
				assert.Equal(t, []runtime.Measurement{volume.SELinuxAdmitted{Plugin: seLinuxName, AccessMode: "RWO"},
					volume.SELinuxConflict{Plugin: seLinuxName, AccessMode: "RWO"}}, r.labels())
			}
			r.mustRemove(pod)
			r.mustRemove(second)
			r.isClean()
		})
	}
}

// Without the feature gate, a volume of one pod is mounted with its label. A device has none.
func TestSELinuxMountOfOnePod(t *testing.T) {
	r := newRig(t, csidriver.Options{Links: true, Settings: csidriver.Settings{NodeCapabilities: without(stageCapability)}})
	r.fileLabel, r.onlyOncePod = fileLabel, true
	r.supportLabels(true)
	r.restart()
	r.add("data", mode(v1.ReadWriteOncePod))
	r.add("raw", block)
	pod := r.podOf("web", levelOne, "data", "raw")
	ready := r.mustSetUp(pod)
	assert.False(t, ready["data"].Relabel)
	assert.ElementsMatch(t, [][]string{{contextOne}, nil}, r.flags())
	r.mustRemove(pod)
	r.isClean()
}

// A volume that was mounted without a label, by an earlier version or by a kubelet whose feature gate was off, stays so
// for all of its pods.
func TestMountedBeforeWithoutLabel(t *testing.T) {
	r := newRig(t, csidriver.Options{Links: true})
	r.supportLabels(true)
	r.add("data")
	web, db := r.podOf("web", levelOne, "data"), r.podOf("db", levelOne, "data")
	assert.True(t, r.mustSetUp(web)["data"].Relabel)
	r.fileLabel = fileLabel
	r.restart()
	_, err := r.setUp(db)
	require.ErrorContains(t, err, `conflicting SELinux labels of volume data: "" and "`+labelOne+`"`,
		"it is not known yet what the other pod requests")
	assert.True(t, r.mustSetUp(web)["data"].Relabel)
	assert.True(t, r.mustSetUp(db)["data"].Relabel)
	for _, flags := range r.flags() {
		assert.Empty(t, flags)
	}
	r.mustRemove(web)
	r.mustRemove(db)
	assert.False(t, r.mustSetUp(db)["data"].Relabel)
	assert.Equal(t, [][]string{{contextOne}, {contextOne}}, r.flags())
	r.mustRemove(db)
	r.isClean()
}

// The label of a volume of a kubelet, also while the API server is away.
func TestLabelOfKubelet(t *testing.T) { forEachWay(t, testLabelOfKubelet) }

func testLabelOfKubelet(t *testing.T, opts csidriver.Options) {
	r := labelled(t, opts)
	r.add("data", mode(v1.ReadWriteMany))
	pod := r.podOf("web", levelOne, "data")
	assert.False(t, r.mustSetUp(pod)["data"].Relabel)
	// A kubelet has no record of its own.
	require.NoError(t, os.Remove(filepath.Join(r.podDir(pod), "plugins/kubernetes.io~csi/data/vol_data.json")))
	r.restart()
	r.flags()
	other := r.podOf("other", levelTwo, "data")
	_, err := r.setUp(other)
	require.ErrorContains(t, err, `conflicting SELinux labels of volume data: "`+labelOne+`" and "`+labelTwo+`"`)
	r.mustRemove(other)
	r.cluster.setAway(errors.New("away"))
	ready, err := r.setUp(pod)
	require.ErrorContains(t, err, "away")
	assert.False(t, ready["data"].Relabel)
	assert.Equal(t, r.driver.Mounts(), ready["data"].HostPath != "")
	r.cluster.setAway(nil)
	assert.False(t, r.mustSetUp(pod)["data"].Relabel)
	assert.Equal(t, [][]string{{contextOne}, {contextOne}}, r.flags())
	r.mustRemove(pod)
	r.isClean()
}
