package csi_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
)

// kubelet does what kubelet 1.37 does with volumes of drivers: the paths and files of csi_attacher.go, csi_mounter.go
// and csi_block.go.
type kubelet struct {
	*rig
	client csipb.NodeClient
}

func newKubelet(r *rig) kubelet {
	conn, err := grpc.NewClient("unix:"+r.driver.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(r, err)
	r.Cleanup(func() { assert.NoError(r, conn.Close()) })
	return kubelet{r, csipb.NewNodeClient(conn)}
}

func sum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func (k kubelet) csi(elem ...string) string {
	return filepath.Join(append([]string{k.root, "plugins/kubernetes.io/csi"}, elem...)...)
}

func (k kubelet) mkdir(path string) string {
	require.NoError(k, os.MkdirAll(path, 0o750))
	return path
}

// save is saveVolumeData.
func (k kubelet) save(dir string, data map[string]string) {
	require.NoError(k, os.WriteFile(filepath.Join(k.mkdir(dir), "vol_data.json"), encoded(k.T, data), 0o644))
}

func encoded(t *testing.T, data map[string]string) []byte {
	var out bytes.Buffer
	require.NoError(t, json.NewEncoder(&out).Encode(data))
	return out.Bytes()
}

// data is the content of vol_data.json of a volume.
func (k kubelet) data(spec, handle, mode string) map[string]string {
	out := map[string]string{"specVolID": spec, "volumeHandle": handle, "driverName": k.driver.Name(), "nodeName": nodeName,
		"attachmentID": "csi-" + sum(handle+k.driver.Name()+nodeName)}
	if mode != "" {
		out["volumeLifecycleMode"] = mode
	}
	return out
}

func (k kubelet) access(isBlock bool) *csipb.VolumeCapability {
	c := &csipb.VolumeCapability{AccessMode: &csipb.VolumeCapability_AccessMode{
		Mode: csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER}}
	if isBlock {
		c.AccessType = &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csipb.VolumeCapability_Mount{Mount: &csipb.VolumeCapability_MountVolume{}}
	}
	return c
}

func (k kubelet) stage(handle, path string, isBlock bool) {
	_, err := k.client.NodeStageVolume(k.Context(), &csipb.NodeStageVolumeRequest{VolumeId: handle,
		StagingTargetPath: k.mkdir(path), VolumeCapability: k.access(isBlock),
		PublishContext: map[string]string{"attached-to": "node"}})
	require.NoError(k, err)
}

func (k kubelet) publish(handle, stage, path string, isBlock bool, attributes map[string]string) {
	k.mkdir(filepath.Dir(path))
	_, err := k.client.NodePublishVolume(k.Context(), &csipb.NodePublishVolumeRequest{VolumeId: handle,
		StagingTargetPath: stage, TargetPath: path, VolumeCapability: k.access(isBlock), VolumeContext: attributes,
		PublishContext: map[string]string{"attached-to": "node"}})
	require.NoError(k, err)
}

// setUpPod sets up the volumes data and raw, and the inline volume scratch.
func (k kubelet) setUpPod(pod *v1.Pod) {
	uid, dir := string(pod.UID), k.podDir(pod)
	stage := k.csi(k.driver.Name(), sum("handle-data"), "globalmount")
	k.save(filepath.Dir(stage), map[string]string{"volumeHandle": "handle-data", "driverName": k.driver.Name()})
	k.stage("handle-data", stage, false)
	at := filepath.Join(dir, "volumes/kubernetes.io~csi/data")
	k.save(at, k.data("data", "handle-data", "Persistent"))
	k.publish("handle-data", stage, filepath.Join(at, "mount"), false, nil)

	stage = k.csi("volumeDevices/staging/raw")
	k.save(k.csi("volumeDevices/raw/data"), k.data("raw", "handle-raw", ""))
	k.stage("handle-raw", stage, true)
	target := k.csi("volumeDevices/publish/raw", uid)
	k.publish("handle-raw", stage, target, true, nil)
	mapped := filepath.Join(k.mkdir(k.csi("volumeDevices/raw/dev")), uid)
	require.NoError(k, os.WriteFile(mapped, nil, 0o600))
	if k.driver.Mounts() {
		bindFile(k.T, target, mapped)
	}
	link := filepath.Join(k.mkdir(filepath.Join(dir, "volumeDevices/kubernetes.io~csi")), "raw")
	require.NoError(k, os.Symlink(target, link))

	at = filepath.Join(dir, "volumes/kubernetes.io~csi/scratch")
	handle := "csi-" + sum(uid+"scratch")
	k.save(at, k.data("scratch", handle, "Ephemeral"))
	k.publish(handle, "", filepath.Join(at, "mount"), false, map[string]string{"csi.storage.k8s.io/ephemeral": "true"})
}

// The volumes of a kubelet are used again, or taken down, with the right calls.
func TestTakeover(t *testing.T) {
	forEachWay(t, func(t *testing.T, opts csidriver.Options) {
		for _, uses := range []bool{false, true} {
			r := newRig(t, opts)
			r.cluster.change(csidriver.DefaultName, func(spec *storagev1.CSIDriverSpec) { spec.PodInfoOnMount = nil })
			r.add("data")
			r.add("raw", block)
			pod := r.pod("web", "data", "raw")
			r.use(pod, r.inline("scratch"))
			k := newKubelet(r)
			k.setUpPod(pod)
			db := r.pod("db", "data", "raw")
			r.restart()
			r.calls()
			if uses {
				ready, err := r.setUp(r.pod("web", "data", "raw"))
				require.NoError(t, err)
				assert.Equal(t, filepath.Join(r.podDir(pod), "volumeDevices/kubernetes.io~csi/raw"), ready["raw"].HostPath)
				assert.Equal(t, filepath.Join(r.podDir(pod), "volumes/kubernetes.io~csi/data/mount"), ready["data"].HostPath)
				assert.Equal(t, []string{"Stage data", "Publish data", "Stage raw", "Publish raw"}, r.calls())
			}
			r.mustSetUp(db)
			r.calls()
			r.mustRemove(pod)
			assert.ElementsMatch(t, []string{"Unpublish data", "Unpublish raw",
				"Unpublish csi-" + sum("uid-webscratch")}, r.calls(), "the other pod uses both volumes")
			r.mustRemove(db)
			r.isClean()
		}
	})
}

// An agent that is killed between the calls for a volume of a kubelet takes it down all the same.
func TestTakeoverKilledAtEachStep(t *testing.T) {
	forEachWay(t, func(t *testing.T, opts csidriver.Options) {
		for n := 1; ; n++ {
			r := newRig(t, opts)
			r.add("data")
			r.add("raw", block)
			pod := r.pod("web", "data", "raw")
			r.use(pod, r.inline("scratch"))
			newKubelet(r).setUpPod(pod)
			killer := &killer{left: n}
			r.plugin.Before(killer.step)
			err := r.remove(pod)
			if killer.dead {
				require.ErrorIs(t, err, errKilled)
				r.restart()
			}
			r.mustRemove(pod)
			r.isClean()
			if t.Failed() {
				t.Fatalf("killed before step %d: %s", n, killer.last)
			}
			if !killer.dead {
				require.Greater(t, n, 10)
				break
			}
		}
	})
}

// The files are those that kubelet writes, byte for byte.
func TestFilesOfKubelet(t *testing.T) {
	r := linked(t)
	r.add("data")
	r.add("raw", block)
	pod := r.pod("web", "data", "raw")
	r.use(pod, r.inline("scratch"))
	r.mustSetUp(pod)
	k := newKubelet(r)
	for path, want := range map[string]map[string]string{
		k.csi(r.driver.Name(), sum("handle-data"), "vol_data.json"): {"volumeHandle": "handle-data",
			"driverName": r.driver.Name()},
		filepath.Join(r.podDir(pod), "volumes/kubernetes.io~csi/data/vol_data.json"): k.data("data", "handle-data",
			"Persistent"),
		k.csi("volumeDevices/raw/data/vol_data.json"): k.data("raw", "handle-raw", ""),
		filepath.Join(r.podDir(pod), "volumes/kubernetes.io~csi/scratch/vol_data.json"): k.data("scratch",
			"csi-"+sum("uid-webscratch"), "Ephemeral"),
	} {
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(encoded(t, want)), string(got), path)
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Zero(t, info.Mode()&0o022, "others may not write it")
	}
	r.mustRemove(pod)
	r.isClean()
}
