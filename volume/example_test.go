package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

// lease is a [volume.Plugin] that leases a disk for each volume, and writes down
// which.
type lease struct{ free []string }

func (*lease) Name() string { return "example.com/lease" }

func (*lease) Supports(v *v1.Volume) bool {
	return v.FlexVolume != nil && v.FlexVolume.Driver == "example.com/lease"
}

func (l *lease) SetUp(_ context.Context, req volume.SetUpRequest) (runtime.Volume, error) {
	note := filepath.Join(req.StateDir, "disk")
	disk, err := os.ReadFile(note)
	if errors.Is(err, os.ErrNotExist) { // the first time
		disk = []byte(l.free[0])
		l.free = l.free[1:]
		err = os.WriteFile(note, disk, 0o600)
	}
	return runtime.Volume{HostPath: string(disk)}, err
}

func (l *lease) TearDown(_ context.Context, req volume.TearDownRequest) error {
	disk, err := os.ReadFile(filepath.Join(req.StateDir, "disk"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // SetUp has not come that far
	}
	if err == nil && !slices.Contains(l.free, string(disk)) {
		l.free = append(l.free, string(disk))
	}
	return err
}

func ExamplePlugin() {
	dir, err := os.MkdirTemp("", "pod")
	if err != nil {
		panic(err)
	}
	plugin := &lease{free: []string{"/disks/1", "/disks/2"}}
	m, err := volume.New(volume.Options{Plugins: []volume.Plugin{plugin}})
	if err != nil {
		panic(err)
	}
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "db", "default", "1234"
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		FlexVolume: &v1.FlexVolumeSource{Driver: "example.com/lease"},
	}}}
	for range 2 { // at each sync
		ready, err := m.SetUp(context.Background(), pod, dir)
		fmt.Println(ready["data"].HostPath, plugin.free, err)
	}
	// The spec may be gone.
	err = m.Remove(context.Background(), runtime.PodRef{UID: "1234"}, dir)
	fmt.Println(plugin.free, err)
	// Output:
	// /disks/1 [/disks/2] <nil>
	// /disks/1 [/disks/2] <nil>
	// [/disks/2 /disks/1] <nil>
}
