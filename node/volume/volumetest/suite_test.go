package volumetest_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
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

func TestEmptyDirOnHugePages(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("mounting needs root on Linux")
	}
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		t.Skip("the machine has no huge pages of 2 MiB: ", err)
	}
	f := emptyDir(v1.StorageMediumHugePages)
	f.Pod = &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}},
	}}}}
	volumetest.Suite(t, f)
}

func TestImage(t *testing.T) {
	volumetest.Suite(t, volumetest.Factory{
		New:    func(*testing.T) volume.Plugin { return volume.Image{} },
		Volume: v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "files:1"}}},
		NoPath: true,
	})
}

// claims has one claim, which is bound to a directory of the host.
type claims struct {
	volume.ClaimBase
	path    string
	options []string
}

func (c claims) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: "disk"},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	claim.Namespace, claim.Name, claim.UID = namespace, name, "claim"
	return claim, ctx.Err()
}

func (c claims) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	disk := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: c.path}},
		ClaimRef:               &v1.ObjectReference{Namespace: "default", Name: "c", UID: "claim"},
		MountOptions:           c.options,
	}}
	disk.Name = name
	return disk, ctx.Err()
}

func TestClaim(t *testing.T) { testClaim(t, nil) }

func TestClaimWithMountOptions(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("mounting needs root on Linux")
	}
	testClaim(t, []string{"noexec"})
}

func testClaim(t *testing.T, options []string) {
	src := volume.Sources{Claims: claims{path: t.TempDir(), options: options}}
	volumetest.Suite(t, volumetest.Factory{
		New: func(*testing.T) volume.Plugin { return volume.Claim{Sources: src} },
		Volume: v1.Volume{Name: "v",
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				ClaimName: "c"}}},
	})
}

func TestHostPath(t *testing.T) {
	volumetest.Suite(t, volumetest.Factory{
		New: func(*testing.T) volume.Plugin { return volume.HostPath{} },
		Volume: v1.Volume{Name: "v",
			VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}}},
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
		{volume.DownwardAPI{Sources: src}, v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{{Path: "pod/name",
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		}}},
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
