package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
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

// objects are the objects of a node without an API server; see package podconfig/objects.
type objects struct{ conf *v1.ConfigMap }

func (o *objects) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return o.conf, nil
}

func (*objects) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	return nil, fmt.Errorf("secret %q not found", name)
}

// The files of a volume follow its config map, at each call of SetUp.
func ExampleSources() {
	dir, err := os.MkdirTemp("", "pod")
	if err != nil {
		panic(err)
	}
	o := &objects{&v1.ConfigMap{Data: map[string]string{"color": "red"}}}
	m, err := volume.New(volume.Options{Sources: volume.Sources{Objects: o}})
	if err != nil {
		panic(err)
	}
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "1234"
	pod.Spec.Containers = []v1.Container{{Name: "main",
		VolumeMounts: []v1.VolumeMount{{Name: "conf", MountPath: "/conf"}}}}
	pod.Spec.Volumes = []v1.Volume{{Name: "conf", VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}},
	}}}
	for _, color := range []string{"red", "blue"} {
		o.conf = &v1.ConfigMap{Data: map[string]string{"color": color}}
		ready, err := m.SetUp(context.Background(), pod, dir)
		data, _ := os.ReadFile(filepath.Join(ready["conf"].HostPath, "color"))
		fmt.Println(string(data), err)
	}
	fmt.Println(m.Remove(context.Background(), runtime.RefOf(pod), dir))
	// Output:
	// red <nil>
	// blue <nil>
	// <nil>
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
	pod.Spec.Containers = []v1.Container{{Name: "main",
		VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}}
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
