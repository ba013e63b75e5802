package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
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

// kubeletTree is what a kubelet has on disk of the volumes of testCSIKubelet.
const kubeletTree = `
plugins/kubernetes.io/csi drwxr-x---
plugins/kubernetes.io/csi/any.example.com drwxr-x---
plugins/kubernetes.io/csi/any.example.com/3d7db37d08f9140fd09f12b9621cd0954b6d56a9d2f357fb2c7f5d62636d2fd1 drwxr-x---
plugins/kubernetes.io/csi/any.example.com/3d7db37d08f9140fd09f12b9621cd0954b6d56a9d2f357fb2c7f5d62636d2fd1/globalmount drwxr-x---
plugins/kubernetes.io/csi/any.example.com/3d7db37d08f9140fd09f12b9621cd0954b6d56a9d2f357fb2c7f5d62636d2fd1/vol_data.json driverName=any.example.com volumeHandle=files
plugins/kubernetes.io/csi/volumeDevices drwxr-x---
plugins/kubernetes.io/csi/volumeDevices/csi-disk drwxr-x---
plugins/kubernetes.io/csi/volumeDevices/csi-disk/data drwxr-x---
plugins/kubernetes.io/csi/volumeDevices/csi-disk/data/vol_data.json attachmentID=ATTACHMENT driverName=any.example.com nodeName=node specVolID=csi-disk volumeHandle=disk
plugins/kubernetes.io/csi/volumeDevices/csi-disk/dev drwxr-x---
plugins/kubernetes.io/csi/volumeDevices/csi-disk/dev/disk -rwxr-x---
plugins/kubernetes.io/csi/volumeDevices/csi-disk/dev/drive -rwxr-x---
plugins/kubernetes.io/csi/volumeDevices/publish drwxr-x---
plugins/kubernetes.io/csi/volumeDevices/publish/csi-disk drwxr-x---
plugins/kubernetes.io/csi/volumeDevices/publish/csi-disk/disk -rw-------
plugins/kubernetes.io/csi/volumeDevices/publish/csi-disk/drive -rw-------
plugins/kubernetes.io/csi/volumeDevices/staging drwxr-x---
plugins/kubernetes.io/csi/volumeDevices/staging/csi-disk drwxr-x---
pods/db/volumes/kubernetes.io~csi drwxr-x---
pods/db/volumes/kubernetes.io~csi/csi-files drwxr-x---
pods/db/volumes/kubernetes.io~csi/csi-files/mount drwxr-xr-x
pods/db/volumes/kubernetes.io~csi/csi-files/vol_data.json attachmentID=ATTACHMENT driverName=any.example.com nodeName=node specVolID=csi-files volumeHandle=files volumeLifecycleMode=Persistent
pods/disk/volumeDevices drwxr-x---
pods/disk/volumeDevices/kubernetes.io~csi drwxr-x---
pods/disk/volumeDevices/kubernetes.io~csi/csi-disk -> plugins/kubernetes.io/csi/volumeDevices/publish/csi-disk/disk
pods/drive/volumeDevices drwxr-x---
pods/drive/volumeDevices/kubernetes.io~csi drwxr-x---
pods/drive/volumeDevices/kubernetes.io~csi/csi-disk -> plugins/kubernetes.io/csi/volumeDevices/publish/csi-disk/drive
pods/inline/volumes/kubernetes.io~csi drwxr-x---
pods/inline/volumes/kubernetes.io~csi/data drwxr-x---
pods/inline/volumes/kubernetes.io~csi/data/mount drwxr-xr-x
pods/inline/volumes/kubernetes.io~csi/data/vol_data.json attachmentID=ATTACHMENT driverName=any.example.com nodeName=node specVolID=data volumeHandle=INLINE volumeLifecycleMode=Ephemeral
pods/web/volumes/kubernetes.io~csi drwxr-x---
pods/web/volumes/kubernetes.io~csi/csi-files drwxr-x---
pods/web/volumes/kubernetes.io~csi/csi-files/mount drwxr-xr-x
pods/web/volumes/kubernetes.io~csi/csi-files/vol_data.json attachmentID=ATTACHMENT driverName=any.example.com nodeName=node specVolID=csi-files volumeHandle=files volumeLifecycleMode=Persistent
`

// csiTree returns what there is of CSI volumes on disk, a line each, without what is mounted. The UIDs of pods are
// replaced by names. The order of the keys of files, and their permissions, are not compared: only this agent keeps
// them from other users. An attachment whose name is kubelet's is ATTACHMENT.
func (s *nodeSuite) csiTree(t *testing.T) (lines []string) {
	t.Helper()
	names := []string{s.agent.Root + "/", ""}
	s.mu.Lock()
	for _, pod := range s.created {
		sum := sha256.Sum256([]byte(string(pod.UID) + "data")) // of volumes in the specs of pods
		names = append(names, string(pod.UID), pod.Name, "csi-"+hex.EncodeToString(sum[:]), "INLINE")
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
				content, err := csiRecord(path)
				if err != nil {
					return err
				}
				line = path + content
			case info.Mode()&fs.ModeSymlink != 0:
				target, err := os.Readlink(path)
				if err != nil {
					return err
				}
				line = path + " -> " + target
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

// csiRecord returns the content of a file vol_data.json, in the order of the keys.
func csiRecord(file string) (content string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	values := map[string]string{}
	if err := json.Unmarshal(data, &values); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(values["volumeHandle"] + values["driverName"] + values["nodeName"]))
	if values["attachmentID"] == "csi-"+hex.EncodeToString(sum[:]) {
		values["attachmentID"] = "ATTACHMENT"
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		content += " " + key + "=" + values[key]
	}
	return content, nil
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
			// A kubelet removes containers only once a minute.
			Eventually(t, eventually, "pod "+name+" gone", func() error { return s.plane.NoPod(ns, name) })
		}
	}
	inline := withClaim("inline", "")
	inline.Spec.Volumes[0].VolumeSource = v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: name}}
	create(withClaim("web", "files"), withClaim("db", "files"), inline, withDevice("disk", "disk", false),
		withDevice("drive", "disk", false))
	tree := strings.Split(strings.TrimSpace(kubeletTree), "\n")
	assert.Equal(t, tree, s.csiTree(t))
	assert.Len(t, loopsOf(s.Dir), 3, "that of the driver, and one for each pod")
	takeOver(agents[1])
	assert.Equal(t, tree, s.csiTree(t), "what is taken over stays")
	assert.Len(t, loopsOf(s.Dir), 3)
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
