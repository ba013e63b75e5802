package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// csiTree returns what there is of CSI volumes on disk, a line each, without what is mounted. The UIDs of pods, and the
// root directory, are replaced by names.
func (s *nodeSuite) csiTree(t *testing.T) (lines []string) {
	t.Helper()
	names := []string{s.agent.Root, "ROOT"}
	s.mu.Lock()
	for _, pod := range s.created {
		names = append(names, string(pod.UID), pod.Name)
	}
	s.mu.Unlock()
	named := strings.NewReplacer(names...)
	dirs := []string{filepath.Join(s.agent.Root, "plugins", "kubernetes.io", "csi")}
	for _, pattern := range []string{"volumes/kubernetes.io~csi", "volumeDevices"} {
		found, err := filepath.Glob(filepath.Join(s.agent.Root, "pods", "*", pattern))
		require.NoError(t, err)
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			line := fmt.Sprintf("%s %v", path, info.Mode())
			switch {
			case e.Name() == "vol_data.json":
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				line += " " + strings.TrimSpace(string(data))
			case info.Mode()&fs.ModeSymlink != 0:
				target, err := os.Readlink(path)
				if err != nil {
					return err
				}
				line += " " + target
			}
			lines = append(lines, named.Replace(line))
			if e.Name() == "mount" || e.Name() == "globalmount" {
				return fs.SkipDir
			}
			return nil
		})
		require.NoError(t, err)
	}
	slices.Sort(lines)
	return lines
}

// A kubelet and this agent take over the CSI volumes of each other: those that are staged, published, in the spec of a
// pod, and devices, with pods that run on. Whichever of them is there at the end takes everything down.
func TestCSIKubelet(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	for name, first := range map[string]string{"AgentEnds": "", "KubeletEnds": KubeletBinary(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCSIKubelet(t, first)
		})
	}
}

func testCSIKubelet(t *testing.T, first string) {
	// In the mount namespace mounts are shared; otherwise a kubelet mounts its root directory over that of the agent.
	c := NewClusterWith(t, ClusterOptions{OwnDirs: []string{"/var/lib/kubelet"}})
	second := KubeletBinary(t)
	if first != "" {
		second = ""
	}
	config := map[string]any{"nodeStatusUpdateFrequency": "1s"} // a kubelet reports volumes in use so often
	s := newNodeSuiteOn(t, c, AgentOptions{Binary: first, Config: config})
	agents := []*Agent{s.agent, c.NewAgent(t, AgentOptions{Binary: second, Config: config,
		Kubeconfig: s.plane.NodeKubeconfig(t, NodeName)})}
	s.start(t)
	const name = "any.example.com"
	d := startCSI(t, s, name, "{attachRequired: true, podInfoOnMount: true, fsGroupPolicy: File, "+
		"volumeLifecycleModes: [Persistent, Ephemeral]}", "-volume=files=1073741824", "-volume=disk=1048576")
	s.plane.StartAttacher(t, d.Socket)
	ns := s.plane.Namespace(t, "csi")
	s.plane.Apply(t, csiVolume(ns, "files", name, "files", "ReadWriteMany", "volumeMode: Filesystem"))
	s.plane.Apply(t, csiVolume(ns, "disk", name, "disk", "ReadWriteMany", "volumeMode: Block"))

	running := map[string]string{} // IDs of containers
	create := func(pods ...*v1.Pod) {
		t.Helper()
		s.create(t, ns, pods...)
		for _, pod := range pods {
			s.await(t, ns, pod.Name, Running)
			running[pod.Name] = s.Newest(t, pod.Name, "c").Id
		}
	}
	run := func() {
		t.Helper()
		for pod, id := range running {
			s.awaitReported(t, ns, pod, Running, Restarts("c", 0))
			assert.Equal(t, id, s.Newest(t, pod, "c").Id, "%s runs on", pod)
			out, err := s.TryExec(t, pod, "c", "sh", "-c", "cat /data/file || dd if=/dev/disk bs=1 count=4")
			assert.NoError(t, err, "the volume of %s: %s", pod, out)
		}
	}
	takeOver := func(by *Agent) {
		t.Helper()
		run()
		s.agent.Stop(t)
		s.agent = by
		s.start(t)
		s.awaitDriver(t, name, true)
		run()
	}
	remove := func(names ...string) {
		t.Helper()
		s.plane.Kubectl(t, append([]string{"delete", "-n", ns, "pod", "--wait=false"}, names...)...)
		for _, name := range names {
			delete(running, name)
			Eventually(t, eventually, "pod "+name+" gone", func() error {
				return errors.Join(s.plane.NoPod(ns, name), s.noContainers(t, name))
			})
		}
	}
	inline := withClaim("inline", "")
	inline.Spec.Volumes[0].VolumeSource = v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: name}}
	create(withClaim("web", "files"), withClaim("db", "files"), inline, withDevice("disk", "disk", false),
		withDevice("drive", "disk", false))
	t.Logf("the tree:\n%s", strings.Join(s.csiTree(t), "\n"))
	takeOver(agents[1])
	t.Logf("taken over:\n%s", strings.Join(s.csiTree(t), "\n"))
	remove("db", "disk")
	assert.Zero(t, csiCalls(t, d, "files")["NodeUnstageVolume"])
	assert.Zero(t, csiCalls(t, d, "disk")["NodeUnstageVolume"])
	create(withClaim("late", "files"), withDevice("driver", "disk", false))
	remove("web")
	takeOver(agents[0])
	remove("inline", "late", "drive", "driver")
	s.awaitVolumes(t, "kubernetes.io/csi/any.example.com^files", false, false)
	s.awaitVolumes(t, "kubernetes.io/csi/any.example.com^disk", false, false)
	Eventually(t, eventually, "nothing is left", s.csiLeft)
	for _, volume := range []string{"files", "disk"} {
		assert.Equal(t, 1, csiCalls(t, d, volume)["NodeUnstageVolume"], volume)
	}
	s.agent.AwaitNoPodDirs(t, within)
	s.plane.Kubectl(t, "delete", "persistentvolume", ns+"-files", ns+"-disk", "--wait=false")
}
