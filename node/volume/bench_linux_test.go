package volume_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// BenchmarkTearDown removes 10,000 files of one config map: all in one volume, and in the
// volumes of 100 pods. "ratio" compares it with os.RemoveAll of the same files, in the same run.
//
//	go test -run '^$' -bench TearDown -benchtime 5x ./volume
func BenchmarkTearDown(b *testing.B) {
	const files = 10_000
	for _, pods := range []int{1, 100} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			h := newHeld()
			data := map[string]string{}
			for i := range files / pods {
				data[fmt.Sprintf("key-%d", i)] = "value"
			}
			h.maps["default/conf"] = &v1.ConfigMap{Data: data}
			m, err := volume.New(volume.Options{Sources: volume.Sources{Objects: h}})
			require.NoError(b, err)
			p := pod(configMapVolume("conf", "conf", false))
			var own, bare time.Duration
			remove := func(f func(dir string) error) time.Duration {
				top := b.TempDir()
				var dirs []string
				for i := range pods {
					dirs = append(dirs, filepath.Join(top, fmt.Sprint(i)))
					_, err := m.SetUp(b.Context(), p, dirs[i])
					require.NoError(b, err)
				}
				began := time.Now()
				for _, dir := range dirs {
					require.NoError(b, f(dir))
				}
				return time.Since(began)
			}
			for b.Loop() {
				own += remove(func(dir string) error {
					return m.Remove(context.WithoutCancel(b.Context()),
						kruntime.RefOf(p), dir)
				})
				bare += remove(os.RemoveAll)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(own.Seconds()/float64(b.N), "s")
			b.ReportMetric(bare.Seconds()/float64(b.N), "removeall-s")
			b.ReportMetric(own.Seconds()/bare.Seconds(), "ratio")
		})
	}
}

// BenchmarkSetUp sets up five volumes of a pod that are new, and the same when nothing has
// changed, as in each sync.
func BenchmarkSetUp(b *testing.B) {
	h := newHeld()
	h.maps["default/a"] = &v1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}}
	h.maps["default/b"] = &v1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}}
	h.secrets["default/s"] = &v1.Secret{Data: map[string][]byte{"password": []byte("hunter-1")}}
	m, err := volume.New(volume.Options{Sources: volume.Sources{Objects: h}})
	require.NoError(b, err)
	p := pod(configMapVolume("a", "a", false), configMapVolume("b", "b", false), secretVolume("s", "s"),
		v1.Volume{Name: "p",
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
			}}}}, emptyDir("e", v1.EmptyDirVolumeSource{}))
	top := b.TempDir()
	b.Run("new", func(b *testing.B) {
		i := 0
		for b.Loop() {
			dir := filepath.Join(top, fmt.Sprint(i))
			_, err := m.SetUp(b.Context(), p, dir)
			require.NoError(b, err)
			b.StopTimer()
			require.NoError(b, m.Remove(b.Context(), kruntime.RefOf(p), dir))
			b.StartTimer()
			i++
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		dir := filepath.Join(top, "same")
		for range 2 { // the second one finds all up to date
			_, err := m.SetUp(b.Context(), p, dir)
			require.NoError(b, err)
			time.Sleep(100 * time.Millisecond)
		}
		for b.Loop() {
			_, err := m.SetUp(b.Context(), p, dir)
			require.NoError(b, err)
		}
		require.NoError(b, m.Remove(context.WithoutCancel(b.Context()), kruntime.RefOf(p), dir))
	})
}
