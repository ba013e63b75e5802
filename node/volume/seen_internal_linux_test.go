package volume

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// one is a source with one config map.
type one struct{ m *v1.ConfigMap }

func (o one) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) { return o.m, nil }
func (o one) Secret(context.Context, string, string) (*v1.Secret, error)       { return nil, nil }

// A volume that was found up to date is not read again, until anything about it differs.
func TestUnchangedVolumesAreNotRead(t *testing.T) {
	conf := &v1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}}
	compared := 0
	src := Sources{Objects: one{conf}, seen: newSeen(), before: func(string) error { compared++; return nil }}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"},
		Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: "dir/a"},
				{Key: "b", Path: "b"}}},
		}}}}}
	place := PlaceOf(filepath.Join(t.TempDir(), "u"), ConfigMap{}.Name(), "v")
	plugin := ConfigMap{src}
	setUp := func() (read bool) {
		t.Helper()
		compared = 0
		_, err := plugin.SetUp(t.Context(), SetUpRequest{Pod: p, Volume: &p.Spec.Volumes[0], Place: place})
		require.NoError(t, err)
		return compared > 0
	}
	rest := func() {
		t.Helper()
		require.Eventually(t, func() bool { return !setUp() }, time.Minute, settled/10)
	}
	src.seen.settled = time.Hour
	for range 3 {
		assert.True(t, setUp(), "files that were just written may change within a tick of the clock")
	}
	src.seen.settled = settled
	rest()
	current, err := os.Readlink(filepath.Join(place.Dir, dataLink))
	require.NoError(t, err)
	data := filepath.Join(place.Dir, current)
	for name, change := range map[string]func() error{
		"another content": func() error { conf.Data["a"] = "3"; return nil },
		"another mode":    func() error { p.Spec.Volumes[0].ConfigMap.DefaultMode = new(int32(0o600)); return nil },
		"a file is written": func() error {
			return os.WriteFile(filepath.Join(data, "b"), []byte("x"), 0o600)
		},
		"a file is gone":          func() error { return os.Remove(filepath.Join(data, "b")) },
		"a file more":             func() error { return os.WriteFile(filepath.Join(data, "dir/more"), nil, 0o600) },
		"a link is gone":          func() error { return os.Remove(filepath.Join(place.Dir, "b")) },
		"something in the volume": func() error { return os.WriteFile(filepath.Join(place.Dir, "planted"), nil, 0o600) },
		"the volume is gone":      func() error { return os.RemoveAll(place.Dir) },
		"it was taken down":       func() error { return plugin.TearDown(t.Context(), TearDownRequest{Volume: "v", Place: place}) },
		"another volume is mounted": func() error {
			p.Spec.Containers = []v1.Container{{VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"},
				{Name: "w", MountPath: "/v/w"}}}}
			return nil
		},
	} {
		rest()
		if current, err = os.Readlink(filepath.Join(place.Dir, dataLink)); err == nil {
			data = filepath.Join(place.Dir, current)
		}
		require.NoError(t, change(), name)
		assert.True(t, setUp(), name)
		got, err := os.ReadFile(filepath.Join(place.Dir, "dir/a"))
		require.NoError(t, err)
		assert.Equal(t, conf.Data["a"], string(got), name)
		got, err = os.ReadFile(filepath.Join(place.Dir, "b"))
		require.NoError(t, err)
		assert.Equal(t, "2", string(got), name)
	}
}
