//go:build unix

package volume_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
)

// A small spec asks for gigabytes of files, or for hundreds of thousands of directories.
func TestFilesOfAPodAreBounded(t *testing.T) {
	const tooMuch = "too many files: the files of secrets, config maps and other sources in the volumes of the pod " +
		"have more than 134217728 bytes"
	h := newHeld()
	h.maps["default/big"] = &v1.ConfigMap{Data: map[string]string{"k": strings.Repeat("x", 1<<20)}}
	h.secrets["default/big"] = &v1.Secret{Data: map[string][]byte{"k": make([]byte, 1<<20)}}
	items := func(n int, path string) (out []v1.KeyToPath) {
		for i := range n {
			out = append(out, v1.KeyToPath{Key: "k", Path: fmt.Sprintf(path, i)})
		}
		return out
	}
	ofMap := func(name string, items []v1.KeyToPath) v1.Volume {
		return v1.Volume{Name: name,
			VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "big"}, Items: items}}}
	}
	var downward []v1.DownwardAPIVolumeFile
	for i := range 1000 {
		downward = append(downward, v1.DownwardAPIVolumeFile{Path: fmt.Sprint(i),
			FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
	}
	var sources []v1.VolumeProjection
	var many []v1.Volume
	for i := range 200 {
		sources = append(sources,
			v1.VolumeProjection{
				ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "big"}}})
		many = append(many, secretVolume(fmt.Sprintf("v%d", i), "big"))
	}
	h.maps["default/small"] = &v1.ConfigMap{Data: map[string]string{"k": "x"}}
	deep := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: "small"}, Items: items(700, "%d"+strings.Repeat("/d", 64)),
	}}}
	for name, tc := range map[string]struct {
		volumes []v1.Volume
		want    string
	}{
		"items of a config map":           {[]v1.Volume{ofMap("v", items(10_000, "%d"))}, tooMuch},
		"items of the downward API":       {[]v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: downward}}}}, tooMuch},
		"sources that replace each other": {[]v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}}, tooMuch},
		"volumes":                         {many, tooMuch},
		"directories":                     {[]v1.Volume{deep}, tooMuch},
		"levels":                          {[]v1.Volume{ofMap("v", items(1, "%d"+strings.Repeat("/d", 65)))}, "must be below at most 64 directories"},
		"as much as pods have":            {[]v1.Volume{ofMap("v", items(10, "a/b/%d"))}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, dir := contentManager(t, volume.Sources{Objects: h}), filepath.Join(t.TempDir(), "u1")
			p := pod(tc.volumes...)
			p.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)}
			cleanUp(t, m, p, dir)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := m.SetUp(t.Context(), p, dir)
			runtime.ReadMemStats(&after)
			assert.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(512), "MiB")
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			assert.Less(t, len(err.Error()), 200<<10)
		})
	}
}
