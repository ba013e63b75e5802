package volumetest_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/volume"
	"github.com/kubeletkit/kubeletkit/volume/volumetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func emptyDir(medium v1.StorageMedium) volumetest.Factory {
	return volumetest.Factory{
		New:    func(*testing.T) volume.Plugin { return volume.EmptyDir{} },
		Volume: v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}},
	}
}

func TestEmptyDir(t *testing.T) { volumetest.Suite(t, emptyDir(v1.StorageMediumDefault)) }

func TestEmptyDirInMemory(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("mounting needs root on Linux")
	}
	volumetest.Suite(t, emptyDir(v1.StorageMediumMemory))
}

func TestHostPath(t *testing.T) {
	volumetest.Suite(t, volumetest.Factory{
		New:    func(*testing.T) volume.Plugin { return volume.HostPath{} },
		Volume: v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}}},
	})
}

// objects has every secret and config map.
type objects struct{}

func (objects) Secret(ctx context.Context, _, _ string) (*v1.Secret, error) {
	return &v1.Secret{Data: map[string][]byte{"k": []byte("v")}}, ctx.Err()
}

func (objects) ConfigMap(ctx context.Context, _, _ string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{"k": "v"}}, ctx.Err()
}

func TestContent(t *testing.T) {
	src := volume.Sources{Objects: objects{}}
	for _, tc := range []struct {
		plugin volume.Plugin
		source v1.VolumeSource
	}{
		{volume.ConfigMap{Sources: src}, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		{volume.Secret{Sources: src}, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
		{volume.DownwardAPI{Sources: src}, v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}},
		{volume.Projected{Sources: src}, v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{Secret: &v1.SecretProjection{}}}}}},
	} {
		t.Run(tc.plugin.Name(), func(t *testing.T) {
			volumetest.Suite(t, volumetest.Factory{
				New:    func(*testing.T) volume.Plugin { return tc.plugin },
				Volume: v1.Volume{Name: "v", VolumeSource: tc.source},
			})
		})
	}
}

// The suite is called in a test of the package that has the implementation.
func Example() {
	factory := volumetest.Factory{
		New:    func(*testing.T) volume.Plugin { return volume.EmptyDir{} }, // your own
		Volume: v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
	}
	testConformance := func(t *testing.T) { volumetest.Suite(t, factory) }

	fmt.Printf("%T tests %s\n", testConformance, factory.New(nil).Name())
	// Output: func(*testing.T) tests kubernetes.io/empty-dir
}
