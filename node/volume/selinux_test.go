//go:build unix

package volume_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// A claim whose containers have different SELinux labels is refused, as its files can have one only; without the
// feature gate only if one pod may use it.
func TestSELinuxConflicts(t *testing.T) {
	mounts := []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	with := func(name string, o *v1.SELinuxOptions) v1.Container {
		return v1.Container{Name: name, VolumeMounts: mounts, SecurityContext: &v1.SecurityContext{SELinuxOptions: o}}
	}
	level := func(l string) *v1.SELinuxOptions { return &v1.SELinuxOptions{Type: "t", Level: l} }
	one, two := with("one", level("s0:c1")), with("two", level("s0:c2"))
	refused := func(mode string) []kruntime.Measurement {
		return []kruntime.Measurement{volume.SELinuxConflict{AccessMode: mode, Refused: true}}
	}
	const conflict = "multiple SELinux labels found: system_u:object_r:file_t:s0:c1,system_u:object_r:file_t:s0:c2"
	for name, tc := range map[string]struct {
		containers []v1.Container
		ofPod      *v1.SELinuxOptions
		off        bool // SELinux
		without    bool // the gate
		modes      []v1.PersistentVolumeAccessMode
		want       string
		measured   []kruntime.Measurement
	}{
		"different":        {containers: []v1.Container{one, two}, modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteMany}, want: conflict, measured: refused("RWX")},
		"SELinux is off":   {containers: []v1.Container{one, two}, off: true},
		"without the gate": {containers: []v1.Container{one, two}, without: true, modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, measured: []kruntime.Measurement{volume.SELinuxConflict{AccessMode: "RWO"}}},
		"without the gate, for one pod": {containers: []v1.Container{one, two}, without: true, modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod},
			want: conflict, measured: refused("RWOP")},
		"equal":                 {containers: []v1.Container{one, with("two", level("s0:c1"))}},
		"another type":          {containers: []v1.Container{one, with("two", &v1.SELinuxOptions{Type: "u", Level: "s0:c1"})}},
		"another user":          {containers: []v1.Container{one, with("two", &v1.SELinuxOptions{User: "u", Level: "s0:c1"})}, want: "multiple SELinux labels found: system_u:object_r:file_t:s0:c1,u:object_r:file_t:s0:c1", measured: refused("")},
		"of the pod":            {containers: []v1.Container{one, with("two", nil)}, ofPod: level("s0:c2"), want: conflict, measured: refused("")},
		"one has none":          {containers: []v1.Container{one, with("two", nil)}},
		"one has an empty one":  {containers: []v1.Container{one, with("two", &v1.SELinuxOptions{})}, want: "multiple SELinux labels found: ,system_u:object_r:file_t:s0:c1", measured: refused("")},
		"one has no level":      {containers: []v1.Container{one, with("two", &v1.SELinuxOptions{Type: "t"})}, want: "multiple SELinux labels found: system_u:object_r:file_t:,system_u:object_r:file_t:s0:c1", measured: refused("")},
		"no levels":             {containers: []v1.Container{with("one", &v1.SELinuxOptions{Type: "t"}), with("two", &v1.SELinuxOptions{Type: "u"})}},
		"one has not the claim": {containers: []v1.Container{one, {Name: "two", SecurityContext: two.SecurityContext}}},
	} {
		t.Run(name, func(t *testing.T) {
			claims := bound(local(t.TempDir()))
			claims.pv.Spec.AccessModes = tc.modes
			sources := volume.Sources{Claims: claims, FileLabel: "system_u:object_r:file_t:s0"}
			if tc.off {
				sources.FileLabel = ""
			}
			var measured []kruntime.Measurement
			m, err := volume.New(volume.Options{OnlyOncePod: tc.without,
				Sources: sources,
				Observer: kruntime.Observer{NonBlocking: true, Measure: func(m kruntime.Measurement) {
					if _, ok := m.(volume.SELinuxConflict); ok {
						measured = append(measured, m)
					}
				}}})
			require.NoError(t, err)
			p := testpod.New("web", testpod.UID("u1"), testpod.Container(tc.containers...), testpod.Volumes(claimVolume()))
			p.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: tc.ofPod}
			_, err = m.SetUp(t.Context(), p, filepath.Join(t.TempDir(), "u1"))
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
				assert.Contains(t, volume.SetUpErrors(err)[0].Message(), tc.want)
			}
			assert.Equal(t, tc.measured, measured)
		})
	}
}
