package csi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nodeName = "node-1"
	// secret is in all secrets and tokens, and must be nowhere else.
	secret = "pA55w0rd"
)

// forEachWay runs a test with volumes that are linked, and as root with volumes that are mounted.
func forEachWay(t *testing.T, test func(t *testing.T, opts csidriver.Options)) {
	t.Run("linked", func(t *testing.T) { test(t, csidriver.Options{Links: true}) })
	t.Run("mounted", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can mount")
		}
		test(t, csidriver.Options{})
	})
}

// without returns the capabilities of a node except some.
func without(c ...csipb.NodeServiceCapability_RPC_Type) []csipb.NodeServiceCapability_RPC_Type {
	return slices.DeleteFunc(csidriver.AllNode(), func(has csipb.NodeServiceCapability_RPC_Type) bool {
		return slices.Contains(c, has)
	})
}

const (
	stageCapability = csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	groupCapability = csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	multiCapability = csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
)

// rig is a node with one driver.
type rig struct {
	volume.ClaimBase
	*testing.T
	root    string
	opts    csidriver.Options
	driver  *csidriver.Driver
	stop    func()
	cluster *cluster
	host    *host
	timeout time.Duration
	// fileLabel and onlyOncePod are those of package volume.
	fileLabel   string
	onlyOncePod bool
	// volumes are the persistent volumes behind the claims, by the names of both.
	volumes map[string]*v1.PersistentVolume

	plugin  *csi.Plugin
	manager *volume.Reconciler
	end     func()
	errors  []string
	// second is another driver, or nil.
	second *csidriver.Driver
	// nextSocket counts the sockets of the registration.
	nextSocket int
}

func newRig(t *testing.T, opts csidriver.Options) *rig {
	return newRigAt(t, testenv.MemoryDir(t), opts)
}

// newRigAt is newRig with the root directory of an earlier one.
func newRigAt(t *testing.T, root string, opts csidriver.Options) *rig {
	r := &rig{T: t, root: root, opts: opts, cluster: newCluster(), host: &host{}, timeout: 10 * time.Second,
		volumes: map[string]*v1.PersistentVolume{}}
	if r.opts.Dir == "" {
		r.opts.Dir = testenv.MemoryDir(t)
	}
	r.cluster.add(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true),
		PodInfoOnMount: ptr.To(true), FSGroupPolicy: ptr.To(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent,
			storagev1.VolumeLifecycleEphemeral}}}, csidriver.DefaultName)
	r.startDriver()
	r.start()
	t.Cleanup(func() {
		r.end()
		r.stop()
		if t.Failed() {
			_ = r.driver.LoseMounts()
		}
		assert.Empty(t, r.driver.Violations())
		for _, text := range append(r.errors, r.host.log()) {
			assert.NotContains(t, text, secret)
		}
		r.noSecrets()
	})
	return r
}

// startDriver starts the driver at a new socket.
func (r *rig) startDriver() {
	r.Helper()
	r.driver, r.stop = startDriver(r.T, r.opts)
}

// startDriver is csidriver.Start for a driver that is started again and again: only what the last one has mounted is
// unmounted.
func startDriver(t *testing.T, opts csidriver.Options) (*csidriver.Driver, func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // the path of a socket is short
	require.NoError(t, err)
	opts.Socket = filepath.Join(dir, "csi.sock")
	driver, err := csidriver.New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1) // has room for the result
	go func() { ended <- driver.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, csidriver.ErrExit) {
			assert.NoError(t, err)
		}
		assert.NoError(t, os.RemoveAll(dir))
	})
	t.Cleanup(stop)
	<-driver.Ready()
	return driver, stop
}

// start starts an agent, in which the driver is registered.
func (r *rig) start() {
	r.Helper()
	var err error
	r.plugin, err = csi.New(r.cluster, r.root, csi.Options{CallTimeout: r.timeout})
	require.NoError(r, err)
	require.NoError(r, r.plugin.Join(r.host))
	r.manager, err = volume.New(volume.Options{Persistent: []volume.PersistentPlugin{r.plugin},
		OnlyOncePod: r.onlyOncePod, Sources: volume.Sources{Claims: r, FileLabel: r.fileLabel},
		Observer: runtime.Observer{NonBlocking: true, Measure: r.host.Measure}})
	require.NoError(r, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1) // has room for the result
	go func() { ended <- r.plugin.Run(ctx) }()
	r.end = sync.OnceFunc(func() {
		cancel()
		assert.NoError(r, <-ended)
	})
	eventually(r.T, r.register) // with a short timeout of calls, and on a busy machine, not at once
	if r.second != nil {
		require.NoError(r, r.registerSecond())
	}
}

func (r *rig) registerSecond() error {
	return r.plugin.Register(context.WithoutCancel(r.Context()), plugins.Plugin{Type: plugins.TypeCSI,
		Name: r.second.Name(), Endpoint: r.second.Socket(), Versions: []string{"1.0.0"}, Socket: "second"})
}

// restart starts another agent.
func (r *rig) restart() {
	r.Helper()
	r.end()
	r.start()
}

func (r *rig) registration() plugins.Plugin {
	return plugins.Plugin{Type: plugins.TypeCSI, Name: r.driver.Name(), Endpoint: r.driver.Socket(),
		Versions: []string{"1.0.0"}, Socket: fmt.Sprintf("%s-reg-%d", r.driver.Socket(), r.nextSocket)}
}

func (r *rig) register() error {
	return r.plugin.Register(context.WithoutCancel(r.Context()), r.registration())
}

// restartDriver restarts the driver at a new socket.
func (r *rig) restartDriver() {
	r.Helper()
	r.plugin.Deregister(r.registration())
	r.stop()
	r.nextSocket++
	r.startDriver()
	require.NoError(r, r.register())
}

// add adds a volume that is attached, and a claim of it.
func (r *rig) add(name string, change ...func(pv *v1.PersistentVolume)) *v1.PersistentVolume {
	r.Helper()
	return r.addTo(r.driver, name, change...)
}

func (r *rig) addTo(driver *csidriver.Driver, name string, change ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
	r.Helper()
	pv := &v1.PersistentVolume{}
	pv.Name, pv.UID = name, types.UID("uid-"+name)
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: types.UID("claim-" + name)}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver.Name(), VolumeHandle: "handle-" + name}
	for _, c := range change {
		c(pv)
	}
	r.volumes[name] = pv
	handle := pv.Spec.CSI.VolumeHandle
	require.NoError(r, driver.AddVolume(handle, 1<<20))
	metadata, err := driver.AttachVolume(handle, driver.Settings().NodeID, nil)
	require.NoError(r, err)
	r.cluster.attach(csinode.AttachmentName(handle, driver.Name(), nodeName),
		storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: metadata})
	return pv
}

func block(pv *v1.PersistentVolume) { pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) }

func mode(m v1.PersistentVolumeAccessMode) func(*v1.PersistentVolume) {
	return func(pv *v1.PersistentVolume) { pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{m} }
}

// Claim implements [volume.ClaimSource].
func (r *rig) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID("claim-"+name)
	claim.Spec.VolumeName, claim.Status.Phase = name, v1.ClaimBound
	return claim, nil
}

// PersistentVolume implements [volume.ClaimSource].
func (r *rig) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return r.volumes[name], nil
}

// pod returns a pod with claims of volumes, which it mounts or uses as devices.
func (r *rig) pod(name string, volumes ...string) *v1.Pod {
	pod := testpod.New(name, testpod.Namespace("default"), testpod.UID(types.UID("uid-"+name)), testpod.Containers("main"))
	pod.Spec.ServiceAccountName = "account"
	for _, v := range volumes {
		r.use(pod, v1.Volume{Name: v, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: v}}})
	}
	return pod
}

func (r *rig) use(pod *v1.Pod, v v1.Volume) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	main := &pod.Spec.Containers[0]
	if pv := r.volumes[v.Name]; pv != nil && pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock {
		main.VolumeDevices = append(main.VolumeDevices, v1.VolumeDevice{Name: v.Name, DevicePath: "/dev/" + v.Name})
		return
	}
	main.VolumeMounts = append(main.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
}

// inline returns a volume in the spec of a pod.
func (r *rig) inline(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: r.driver.Name()}}}
}

func (r *rig) podDir(pod *v1.Pod) string { return filepath.Join(r.root, "pods", string(pod.UID)) }

func (r *rig) setUp(pod *v1.Pod) (map[string]runtime.Volume, error) {
	ready, err := r.manager.SetUp(context.WithoutCancel(r.Context()), pod, r.podDir(pod))
	r.seen(err)
	return ready, err
}

func (r *rig) seen(err error) {
	if err != nil {
		r.errors = append(r.errors, err.Error())
	}
}

func (r *rig) mustSetUp(pod *v1.Pod) map[string]runtime.Volume {
	r.Helper()
	ready, err := r.setUp(pod)
	require.NoError(r, err)
	return ready
}

func (r *rig) remove(pod *v1.Pod) error {
	err := r.manager.Remove(context.WithoutCancel(r.Context()), runtime.PodRef{UID: pod.UID}, r.podDir(pod))
	r.seen(err)
	return err
}

func (r *rig) mustRemove(pod *v1.Pod) {
	r.Helper()
	require.NoError(r, r.remove(pod))
}

// calls returns the methods that change volumes, in their order, with the volumes, and forgets them.
func (r *rig) calls() (out []string) {
	for _, c := range r.driver.Calls() {
		switch c.Method {
		case "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume":
			method := strings.TrimSuffix(strings.TrimPrefix(c.Method, "Node"), "Volume")
			out = append(out, method+" "+strings.TrimPrefix(c.VolumeID(), "handle-"))
		}
	}
	r.driver.ForgetCalls()
	return out
}

// request returns the last request of a method.
func request[T any](r *rig, method string) T {
	r.Helper()
	for _, c := range slices.Backward(r.driver.Calls()) {
		if c.Method == method {
			return c.Request.(any).(T)
		}
	}
	require.Fail(r, "there was no call of "+method)
	panic("unreachable")
}

// isClean checks that nothing of any volume is left.
func (r *rig) isClean() {
	r.Helper()
	var left []string
	for _, dir := range []string{"pods", "plugins"} {
		err := filepath.WalkDir(filepath.Join(r.root, dir), func(path string, d fs.DirEntry, err error) error {
			path = strings.TrimPrefix(path, r.root+"/")
			switch {
			case path == "pods", path == "plugins", path == "plugins/kubernetes.io", path == "plugins/kubernetes.io/csi":
			case strings.HasPrefix(path, "plugins/") && strings.Count(path, "/") == 3 && d.IsDir(): // of a driver
			case path == "plugins/kubernetes.io/csi/volumeDevices/staging",
				path == "plugins/kubernetes.io/csi/volumeDevices/publish":
			default:
				left = append(left, path)
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			require.NoError(r, err)
		}
	}
	assert.Empty(r, left)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil {
		assert.NotContains(r, string(mounts), r.root)
	}
	assert.Empty(r, r.driver.Violations())
	assert.Empty(r, inDriver(r.T, r.opts.Dir), "the driver has these volumes staged or published")
	volumes, _ := r.plugin.VolumesInUse()
	assert.Empty(r, volumes)
}

// inDriver returns the volumes that a driver has staged or published.
func inDriver(t *testing.T, dir string) (volumes []string) {
	data, err := os.ReadFile(filepath.Join(dir, "state.json"))
	require.NoError(t, err)
	var state struct {
		Volumes map[string]struct {
			Staged  *struct{}
			Targets map[string]struct{}
		}
	}
	require.NoError(t, json.Unmarshal(data, &state))
	for id, v := range state.Volumes {
		if v.Staged != nil || len(v.Targets) > 0 {
			volumes = append(volumes, id)
		}
	}
	return volumes
}

// noSecrets checks that no file has a secret.
func (r *rig) noSecrets() {
	_ = filepath.WalkDir(r.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			data, _ := os.ReadFile(path) // a device is none
			assert.False(r, bytes.Contains(data, []byte(secret)), path)
		}
		return nil
	})
}

// host is the handle of the agent.
type host struct {
	lifecycle.NopNode
	mu       sync.Mutex
	lines    []string
	synced   []types.UID
	changes  int
	measured []runtime.Measurement
}

func (*host) NodeName() string { return nodeName }

func (h *host) Logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.lines = append(h.lines, prefix+args)
	}, funcr.Options{Verbosity: 10})
}

func (h *host) log() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}

func (h *host) Measure(m runtime.Measurement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.measured = append(h.measured, m)
}

func (h *host) measurements() []runtime.Measurement {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.measured)
}

func (h *host) Sync(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.synced = append(h.synced, uid)
}

func (h *host) takeSynced() []types.UID {
	h.mu.Lock()
	defer h.mu.Unlock()
	synced := h.synced
	h.synced = nil
	return synced
}

func (h *host) NodeStatusChanged() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes++
}

// reported returns how often the status of the node has changed.
func (h *host) reported() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changes
}

// notFound is the error of an API server that has no such object.
func notFound(name string) error { return apierrors.NewNotFound(v1.Resource("object"), name) }
