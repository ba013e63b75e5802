package csi_test

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// kinds are the kinds of volumes.
var kinds = []struct {
	name   string
	change []func(*v1.PersistentVolume)
	inline bool
}{{name: "shared"}, {name: "block", change: []func(*v1.PersistentVolume){block}}, {name: "inline", inline: true}}

// forEachKind runs a test with a pod that has a volume of each kind, which is staged or not.
func forEachKind(t *testing.T, test func(t *testing.T, r *rig, pod *v1.Pod)) {
	for _, kind := range kinds {
		for _, staged := range []bool{true, false} {
			if kind.inline && staged {
				continue
			}
			t.Run(fmt.Sprintf("%s, staged %v", kind.name, staged), func(t *testing.T) {
				opts := csidriver.Options{Links: true}
				if !staged {
					opts.NodeCapabilities = without(stageCapability)
				}
				r := newRig(t, opts)
				pod := r.pod("web")
				if kind.inline {
					r.use(pod, r.inline("data"))
				} else {
					r.add("data", kind.change...)
					pod = r.pod("web", "data")
				}
				test(t, r, pod)
				r.isClean()
			})
		}
	}
}

// A driver that has refused a volume for good is not needed at the end of the pod.
func TestRefusedForGood(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *rig, pod *v1.Pod) {
		for _, code := range []codes.Code{codes.Internal, codes.InvalidArgument, codes.NotFound, codes.OutOfRange,
			codes.FailedPrecondition, codes.Unknown, codes.PermissionDenied, codes.Unimplemented} {
			for _, method := range []string{"NodeStageVolume", "NodePublishVolume"} {
				remove := r.driver.Inject(csidriver.Fault{Method: method, Code: code, Message: "no"})
				_, err := r.setUp(pod)
				remove()
				calls := r.calls()
				if err == nil {
					r.mustRemove(pod) // a volume that is not staged
					r.calls()
					continue
				}
				require.ErrorContains(t, err, fmt.Sprintf("rpc error: code = %v desc = no", code))
				if len(calls) == 2 { // it was staged
					r.mustRemove(pod)
					r.calls()
					continue
				}
				r.plugin.Deregister(r.registration())
				r.mustRemove(pod)
				r.isClean()
				require.NoError(t, r.register())
				assert.Empty(t, r.calls())
			}
		}
	})
}

// A driver that refuses a volume and has mounted it all the same has to undo that at the end of the pod.
func TestRefusedButDone(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *rig, pod *v1.Pod) {
		for _, method := range []string{"NodeStageVolume", "NodePublishVolume"} {
			if !r.driver.Mounts() && strings.Contains(t.Name(), "block") && method == "NodeStageVolume" {
				continue // the stage of a device has no trace
			}
			remove := r.driver.Inject(csidriver.Fault{Method: method, Code: codes.Internal, Late: true})
			_, _ = r.setUp(pod)
			r.restart()
			r.mustRemove(pod)
			remove()
			r.isClean()
		}
	})
}

// A call of which it is not known whether the driver still does its work is undone at the end of the pod.
func TestNotRefusedForGood(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *rig, pod *v1.Pod) {
		for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
			for _, code := range []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable,
				codes.ResourceExhausted, codes.Aborted} {
				for _, late := range []bool{true, false} {
					remove := r.driver.Inject(csidriver.Fault{Method: method, Code: code, Late: late})
					_, err := r.setUp(pod)
					if err != nil {
						r.plugin.Deregister(r.registration())
						assert.ErrorContains(t, r.remove(pod), "not found in the list of registered CSI drivers")
						require.NoError(t, r.register())
					} else if err := r.remove(pod); err != nil {
						assert.ErrorContains(t, err, code.String())
						assert.ErrorContains(t, err, "uid-web")
					}
					remove()
					r.mustRemove(pod)
					r.isClean()
					_, err = r.setUp(pod)
					require.NoError(t, err)
					r.mustRemove(pod)
				}
			}
		}
	})
}

// A driver that hangs holds up a pod until the timeout, and the volume is set up again when it answers.
func TestDriverHangs(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *rig, pod *v1.Pod) {
		r.timeout = 100 * time.Millisecond
		for _, method := range []string{"NodeGetCapabilities", "NodeStageVolume", "NodePublishVolume",
			"NodeUnpublishVolume", "NodeUnstageVolume"} {
			for _, late := range []bool{true, false} {
				r.restart()
				remove := r.driver.Inject(csidriver.Fault{Method: method, Hang: true, Late: late})
				_, setUp := r.setUp(pod)
				if setUp != nil && !late { // no driver begins the work after it was told to undo it
					remove()
					r.isIdle()
				}
				end := r.remove(pod)
				for _, err := range []error{setUp, end} {
					if err != nil {
						assert.Regexp(t, "DeadlineExceeded|Aborted", err.Error())
					}
				}
				remove()
				r.isIdle()
				eventually(t, func() error { return r.remove(pod) })
				eventually(t, func() error {
					_, err := r.setUp(pod)
					return err
				})
				eventually(t, func() error { return r.remove(pod) }) // calls are short here, and the machine may be busy
				r.isClean()
			}
		}
	})
}

// A driver that has removed the directory of the stage, and has failed after that, is called again.
func TestUnstageFailsLate(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *rig, pod *v1.Pod) {
		r.mustSetUp(pod)
		if csidriver.Count(r.driver.Calls(), "NodeStageVolume") == 0 {
			r.mustRemove(pod)
			return
		}
		stage := request[*csipb.NodeStageVolumeRequest](r, "NodeStageVolume").StagingTargetPath
		r.driver.Inject(csidriver.Fault{Method: "NodeUnstageVolume", Code: codes.Internal, Late: true, Times: 1})
		require.Error(t, r.remove(pod))
		require.NoError(t, os.RemoveAll(stage))
		r.restart()
		r.mustRemove(pod)
		assert.Equal(t, 2, csidriver.Count(r.driver.Calls(), "NodeUnstageVolume"))
	})
}

// A volume that the driver does not unstage is not published for any pod, and stays in use until another attempt. The
// next pod has it staged again.
func TestUnstageFails(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.DeadlineExceeded} {
		r := newRig(t, csidriver.Options{Links: true})
		r.add("data")
		web, db := r.pod("web", "data"), r.pod("db", "data")
		r.mustSetUp(web)
		r.driver.Inject(csidriver.Fault{Method: "NodeUnstageVolume", Code: code, Times: 2})
		for range 2 {
			err := r.manager.TearDown(t.Context(), runtime.RefOf(web), r.podDir(web))
			require.ErrorIs(t, err, volume.ErrStaged)
			volumes, _ := r.plugin.VolumesInUse()
			assert.Len(t, volumes, 1)
		}
		r.mustSetUp(db)
		r.mustRemove(web)
		volumes, _ := r.plugin.VolumesInUse()
		assert.Len(t, volumes, 1)
		r.mustRemove(db)
		first, again := []string{"Stage data", "Publish data"}, []string{"Unpublish data", "Unstage data"}
		assert.Equal(t, slices.Concat(first, again, again, first, again[:1], again), r.calls())
		r.isClean()
	}
}

// Containers are not started with what is mounted before the first publication has succeeded. Later they are, also by
// another agent while the driver is away.
func TestFirstPublication(t *testing.T) {
	if os.Geteuid() != 0 || goruntime.GOOS != "linux" {
		t.Skip("a link is no mount")
	}
	r := newRig(t, csidriver.Options{})
	r.add("data")
	pod := r.pod("web", "data")
	fails := csidriver.Fault{Method: "NodePublishVolume", Code: codes.DeadlineExceeded, Late: true}
	remove := r.driver.Inject(fails)
	for range 2 {
		ready, err := r.setUp(pod)
		require.Error(t, err)
		assert.Empty(t, ready)
		r.restart()
	}
	remove()
	path := r.mustSetUp(pod)["data"].HostPath
	remove = r.driver.Inject(fails)
	r.restart()
	ready, err := r.setUp(pod)
	require.Error(t, err)
	assert.Equal(t, path, ready["data"].HostPath)
	remove()
	r.mustRemove(pod)
	r.isClean()
}

// isIdle waits until the driver has answered all calls.
func (r *rig) isIdle() {
	r.Helper()
	require.Eventually(r, func() bool {
		return !slices.ContainsFunc(r.driver.Calls(), func(c csidriver.Call) bool { return !c.Done })
	}, 10*time.Second, time.Millisecond)
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, f()) }, 10*time.Second, time.Millisecond)
}

// A driver that ends before it answers comes back at another socket.
func TestDriverEnds(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *rig, pod *v1.Pod) {
		for _, method := range []string{"NodeGetCapabilities", "NodeStageVolume", "NodePublishVolume",
			"NodeUnpublishVolume", "NodeUnstageVolume"} {
			r.restart()
			r.driver.Inject(csidriver.Fault{Method: method, Exit: true, Times: 1})
			_, err := r.setUp(pod)
			if err == nil {
				err = r.remove(pod)
			}
			if err != nil {
				assert.ErrorContains(t, err, "Unavailable")
			}
			r.restartDriver()
			r.mustSetUp(pod)
			r.mustRemove(pod)
			r.isClean()
		}
	})
}

// A pod that waits for a driver does not keep a volume staged, of which nothing on disk would show that the pod is to
// unstage it.
func TestWaitingPodKeepsNoStage(t *testing.T) {
	r := linked(t)
	r.add("data")
	web, db := r.pod("web", "data"), r.pod("db", "data")
	r.mustSetUp(web)
	r.plugin.Deregister(r.registration())
	_, err := r.setUp(db)
	require.Error(t, err)
	require.NoError(t, r.register())
	r.mustRemove(web)
	assert.Equal(t, []string{"Stage data", "Publish data", "Unpublish data", "Unstage data"}, r.calls())
	r.restart()
	r.mustRemove(db)
	r.isClean()
}

// An inline volume with the name of a block volume is another volume.
func TestInlineVolumeWithTheNameOfABlockVolume(t *testing.T) {
	r := linked(t)
	r.add("raw", block)
	web, db := r.pod("web", "raw"), r.pod("db")
	db.Spec.Volumes = []v1.Volume{r.inline("raw")}
	db.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "raw", MountPath: "/raw"}}
	r.mustSetUp(web)
	remove := r.driver.Inject(csidriver.Fault{Method: "NodePublishVolume", Code: codes.Internal})
	_, err := r.setUp(db)
	require.Error(t, err)
	r.plugin.Deregister(r.registration())
	r.restart()
	r.calls()
	r.mustRemove(db)
	assert.Empty(t, r.calls())
	remove()
	r.mustSetUp(web)
	r.mustSetUp(db)
	r.mustRemove(web)
	r.mustRemove(db)
	r.isClean()
}

// A second pod of a ReadWriteOncePod volume is refused by the UID of the first, also after a restart.
func TestReadWriteOncePod(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		r := linked(t)
		r.add("data", mode(v1.ReadWriteOncePod))
		web, db := r.pod("web", "data"), r.pod("db", "data")
		r.mustSetUp(web)
		if restarts {
			r.restart()
		}
		_, err := r.setUp(db)
		assert.ErrorContains(t, err, "volume uses the ReadWriteOncePod access mode and is already in use by another pod, "+
			"that with the UID uid-web")
		r.mustSetUp(web)
		r.mustRemove(web)
		r.mustSetUp(db)
		r.mustRemove(db)
		r.isClean()
	}
}

// Volumes that are published again fail without an effect on the containers, and are not published after the pod.
func TestRepublication(t *testing.T) {
	for _, mounts := range []bool{true, false} {
		if mounts && os.Geteuid() != 0 {
			continue
		}
		r := newRig(t, csidriver.Options{Links: !mounts})
		r.cluster.change(csidriver.DefaultName, func(spec *storagev1.CSIDriverSpec) { spec.RequiresRepublish = ptr.To(true) })
		r.add("data")
		pod := r.pod("web", "data")
		v := r.inline("scratch")
		v.CSI.ReadOnly = ptr.To(true)
		r.use(pod, v)
		first := r.mustSetUp(pod)
		assert.Equal(t, []string{"Stage data", "Publish data"}, r.calls()[:2])
		assert.Equal(t, first, r.mustSetUp(pod))
		assert.Len(t, r.calls(), 2, "both are published again")
		remove := r.driver.Inject(csidriver.Fault{Method: "NodePublishVolume", Code: codes.Internal})
		for _, restarted := range []bool{false, true} {
			if restarted {
				r.restart()
			}
			ready, err := r.setUp(pod)
			require.Error(t, err)
			if mounts {
				assert.Equal(t, first, ready, "what is published stays")
			}
		}
		remove()
		r.mustSetUp(pod)
		r.mustRemove(pod)
		r.isClean()
	}
}

// Files that a power failure has left empty or half written do not keep a pod from its end or from another start.
func TestBrokenRecords(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *rig, pod *v1.Pod) {
		for _, content := range []string{"", `{"driverName":"`, "{}", "null", `[]`, `{"driverName":1}`} {
			for _, own := range []bool{false, true} {
				for _, again := range []bool{false, true} {
					r.mustSetUp(pod)
					breakRecords(t, r.root, own, content)
					r.restart()
					if again {
						r.mustSetUp(pod)
					}
					r.mustRemove(pod)
					r.isClean()
				}
			}
		}
	})
}

// breakRecords overwrites the files vol_data.json: those that only the agent has, or those of a kubelet.
func breakRecords(t *testing.T, root string, own bool, content string) {
	t.Helper()
	patterns := []string{"pods/*/volumes/*/*/vol_data.json", "plugins/*/*/*/*/vol_data.json",
		"plugins/*/*/*/*/*/vol_data.json"}
	if own {
		patterns = []string{"pods/*/plugins/*/*/vol_data.json"}
	}
	n := 0
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, file := range files {
			n++
			require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		}
	}
	require.Positive(t, n)
}
