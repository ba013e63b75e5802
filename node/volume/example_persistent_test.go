package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// shares is a [volume.PersistentPlugin] for directories of a file server, each of which is mounted for each pod. A
// persistent volume names the directory in a flexVolume, which is the type of the API with free options.
type shares struct {
	volume.PersistentBase // the volume is not staged, and is unmounted by the manager
	server                string
}

func (*shares) Name() string { return "example.com/shares" }

func (*shares) Supports(pv *v1.PersistentVolume) bool {
	return pv.Spec.FlexVolume != nil && pv.Spec.FlexVolume.Driver == "example.com/shares"
}

// Publish mounts the directory, unless it is mounted. Here a link is in the place of the mount.
func (s *shares) Publish(_ context.Context, req volume.PersistentRequest) (out volume.Published, err error) {
	directory := filepath.Join(s.server, filepath.Base(req.Volume.Spec.FlexVolume.Options["directory"]))
	err = os.Symlink(directory, req.Dir)
	if errors.Is(err, fs.ErrExist) { // of an earlier sync
		err = nil
	}
	out.HostPath = req.Dir
	out.FSGroup = true // the agent gives the files to the fsGroup of the pod
	return out, err
}

// claim has the claim "photos", which is bound to a volume of the file server.
type claim struct{ volume.ClaimBase }

func (claim) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, "5678"
	claim.Spec.VolumeName, claim.Status.Phase = "pv-1", v1.ClaimBound
	return claim, nil
}

func (claim) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.ClaimRef = name, &v1.ObjectReference{UID: "5678"}
	pv.Spec.FlexVolume = &v1.FlexPersistentVolumeSource{Driver: "example.com/shares",
		Options: map[string]string{"directory": "photos"}}
	return pv, nil
}

// A type of network volumes of a program's own, behind claims.
func ExamplePersistentPlugin() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server := filepath.Join(dir, "server")
	if err := os.MkdirAll(filepath.Join(server, "photos"), 0o777); err != nil {
		panic(err)
	}
	m, err := volume.New(volume.Options{Sources: volume.Sources{Claims: claim{}},
		Persistent: []volume.PersistentPlugin{&shares{server: server}}})
	if err != nil {
		panic(err)
	}
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "1234"
	pod.Spec.Containers = []v1.Container{{Name: "main",
		VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}}
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "photos"}}}}
	podDir := filepath.Join(dir, "pods", "1234")
	ready, err := m.SetUp(context.Background(), pod, podDir)
	if err != nil {
		panic(err)
	}
	at, _ := filepath.Rel(podDir, ready["data"].HostPath)
	fmt.Println(at)
	err = m.Remove(context.Background(), runtime.RefOf(pod), podDir)
	_, gone := os.Lstat(podDir)
	fmt.Println(err, errors.Is(gone, fs.ErrNotExist))
	// Output:
	// volumes/example.com~shares/pv-1
	// <nil> true
}
