package csi_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A pod has an inline volume of a driver, which is published for it.
func Example() {
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	driver, err := csidriver.New(csidriver.Options{Name: "scratch.example.com", Dir: filepath.Join(dir, "driver"),
		Socket: filepath.Join(dir, "csi.sock"), Links: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := driver.Run(ctx); err != nil {
			fmt.Println(err)
		}
	}()
	<-driver.Ready()
	defer func() { cancel(); <-ended }()

	objects := newCluster() // package cluster/storage has that of an API server
	objects.add(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PodInfoOnMount: new(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}}}, "scratch.example.com")
	root := filepath.Join(dir, "root")
	drivers, err := csi.New(objects, root, csi.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	running := make(chan struct{})
	go func() {
		defer close(running)
		_ = drivers.Run(ctx) // the agent runs it
	}()
	defer func() { cancel(); <-running }()
	// The manager of package plugins does this for each socket in its directory.
	if err := drivers.Register(ctx, plugins.Plugin{Type: plugins.TypeCSI, Name: driver.Name(), Endpoint: driver.Socket(),
		Versions: []string{"1.0.0"}}); err != nil {
		fmt.Println(err)
		return
	}

	volumes, err := volume.New(volume.Options{Persistent: []volume.PersistentPlugin{drivers}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "1234"
	pod.Spec.Volumes = []v1.Volume{{Name: "scratch",
		VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "scratch.example.com"}}}}
	pod.Spec.Containers = []v1.Container{{Name: "main",
		VolumeMounts: []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}}}
	podDir := filepath.Join(root, "pods", "1234")
	ready, err := volumes.SetUp(ctx, pod, podDir)
	fmt.Println(filepath.Rel(root, ready["scratch"].HostPath))
	fmt.Println(err)
	fmt.Println(volumes.Remove(ctx, runtime.PodRef{UID: "1234"}, podDir))
	for _, c := range driver.Calls() {
		if publish, ok := c.Request.(*csipb.NodePublishVolumeRequest); ok {
			fmt.Println(c.Method, publish.VolumeContext["csi.storage.k8s.io/pod.name"])
		} else {
			fmt.Println(c.Method)
		}
	}
	// Output:
	// pods/1234/volumes/kubernetes.io~csi/scratch/mount <nil>
	// <nil>
	// <nil>
	// NodeGetInfo
	// NodeGetCapabilities
	// NodePublishVolume web
	// NodeUnpublishVolume
}
