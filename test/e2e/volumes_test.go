package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// mountsIn returns the mount points below a directory.
func mountsIn(t *testing.T, dir string) (points []string) {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(info)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, dir+"/") {
			points = append(points, at)
		}
	}
	return points
}

// podWithVolumes has volumes of each type that is on disk or mounted, and mounts them, some by
// sub-paths.
func podWithVolumes(name string) *v1.Pod {
	c := Sh("main", Forever)
	mount := func(volume, at, sub string) {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: at, SubPath: sub})
	}
	for _, volume := range []string{"config", "secret", "projected", "memory", "disk"} {
		mount(volume, "/"+volume, "")
	}
	mount("disk", "/sub-disk", "a/b")
	mount("config", "/sub-config", "key")
	conf := v1.LocalObjectReference{Name: "volumes"}
	return MakePod(name, Grace(1), Main(c),
		Volume("config", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: conf}}),
		Volume("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "volumes"}}),
		Volume("projected",
			v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: conf}}}}}),
		Volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
		Volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
}

const volumeObjects = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: volumes}, data: {key: value}}
- {apiVersion: v1, kind: Secret, metadata: {name: volumes}, stringData: {key: value}}
`

// TestVolumesOfAKilledAgent kills the agent, again and again, while it sets up the volumes of
// pods, takes them down, or both. In the end the pods run with exactly their mounts, and then
// nothing is left of them.
func TestVolumesOfAKilledAgent(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	agent := c.StartAgent(t, AgentOptions{})
	agent.PutFile(t, "objects.yaml", volumeObjects)
	foreign := filepath.Join(t.TempDir(), "of-the-host")
	require.NoError(t, os.WriteFile(foreign, []byte("mine"), 0o600))
	var pods []*v1.Pod
	for i := range 5 {
		pods = append(pods, podWithVolumes(fmt.Sprintf("killed-%d", i)))
	}
	for round := range 12 {
		for i, pod := range pods {
			if (round+i)%2 == 0 {
				agent.Put(t, pod)
			} else if round > 0 {
				agent.Remove(t, pod)
			}
		}
		time.Sleep(rand.N(700 * time.Millisecond))
		agent.Kill(t)
		agent.Start(t)
		agent.WaitHealthy(t)
	}
	agent.Put(t, pods...)
	for _, pod := range pods {
		agent.Await(t, pod, within, Running)
	}
	agent.AwaitNoPodDirs(t, within)
	var want []string
	for _, pod := range pods {
		got, err := agent.Pod(pod)
		require.NoError(t, err)
		dir := filepath.Join(agent.Root, "pods", string(got.UID))
		if hash := got.Annotations["kubernetes.io/config.hash"]; hash != "" {
			dir = filepath.Join(agent.Root, "pods", hash)
		}
		for _, at := range []string{
			"volumes/kubernetes.io~secret/secret", "volumes/kubernetes.io~projected/projected",
			"volumes/kubernetes.io~empty-dir/memory",
			"volume-subpaths/disk/main/5", "volume-subpaths/config/main/6",
		} {
			want = append(want, filepath.Join(dir, at))
		}
		data, err := os.ReadFile(filepath.Join(dir, "volumes/kubernetes.io~configmap/config/key"))
		require.NoError(t, err)
		assert.Equal(t, "value", string(data))
	}
	assert.ElementsMatch(t, want, mountsIn(t, agent.Root))
	agent.Remove(t, pods...)
	agent.AwaitGone(t, within, pods...)
	agent.AwaitNoPodDirs(t, within)
	assert.Empty(t, mountsIn(t, agent.Root))
	data, err := os.ReadFile(foreign)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(data))
}

// TestImageVolume has the files of an image in a container, also of a path in it.
func TestImageVolume(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{})}
	dir := t.TempDir()
	main := Sh("main",
		`ls /image/bin/busybox > /shared/whole; ls /part/busybox > /shared/part; touch /image/x 2>/dev/null && touch /shared/written; touch /shared/done; `+Forever)
	main.VolumeMounts = []v1.VolumeMount{{Name: "image", MountPath: "/image"},
		{Name: "image", MountPath: "/part", SubPath: "bin"}}
	pod := s.put(t, MakePod("image-volume", Main(main), Shared(dir),
		Volume("image",
			v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: main.Image, PullPolicy: v1.PullIfNotPresent}})))
	s.agent.Await(t, pod, within, Running)
	Eventually(t, within, "the container has looked", func() error {
		_, err := os.Stat(filepath.Join(dir, "done"))
		return err
	})
	for file, want := range map[string]string{"whole": "/image/bin/busybox\n", "part": "/part/busybox\n"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		assert.Equal(t, want, string(data))
	}
	assert.NoFileExists(t, filepath.Join(dir, "written"), "it is read-only")
	missing := s.put(t, MakePod("no-image-volume", Main(main), Shared(dir),
		Volume("image", v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "registry.invalid/none:1",
			PullPolicy: v1.PullNever}})))
	s.agent.Await(t, missing, within, Waiting("main", "ErrImageNeverPull"))
}

// TestVolumesThatAKubeletLeft has an agent clean up after a kubelet that was killed, and whose
// pods were removed meanwhile.
func TestVolumesThatAKubeletLeft(t *testing.T) {
	t.Parallel()
	binary := KubeletBinary(t)
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	main := Sh("main", Forever)
	main.VolumeMounts = []v1.VolumeMount{
		{Name: "memory", MountPath: "/memory"}, {Name: "disk", MountPath: "/disk"}, {Name: "disk", MountPath: "/sub", SubPath: "a"}, {Name: "info", MountPath: "/info"},
	}
	pod := MakePod("left", Grace(1), Main(main),
		Volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
		Volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		Volume("info",
			v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{Path: "name",
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}))
	dir := filepath.Join(c.Dir, "agent")
	before := c.StartAgent(t, AgentOptions{Binary: binary, Dir: dir})
	before.Put(t, pod)
	before.Await(t, pod, within, Running)
	require.Len(t, mountsIn(t, before.Root), 3, "two in memory and a sub-path")
	before.Kill(t)
	require.NoError(t, os.Remove(filepath.Join(before.Manifests, pod.Name+".yaml")))
	after := c.StartAgent(t, AgentOptions{Dir: dir})
	after.AwaitNoPodDirs(t, 2*time.Minute)
	assert.Empty(t, mountsIn(t, after.Root))
	running, err := after.RunningContainers()
	require.NoError(t, err)
	assert.Zero(t, running)
}
