package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// volumeModel is a node whose pods and objects change, whose runtime and volumes fail, and
// whose agent is killed at any step. desired and data are what must be there when it rests.
type volumeModel struct {
	faults
	t      *testing.T
	root   string
	disks  string // the directories of the claims
	rt     *fake.Runtime
	store  *objects.Store
	node   *node
	pods   map[string]*v1.Pod
	uids   int
	data   map[string]string
	foes   []string // directories of pods that a kubelet has left
	mounts bool     // the agent may mount
}

// faults are shared by the test and the agent.
type faults struct {
	mu sync.Mutex
	// errors has what must never happen and has.
	errors []string
	// fail is how many of the next steps fail. kill counts down the steps until the agent is
	// killed; 0 means never, and below nothing happens any more.
	fail, kill int
	// attached has the disks that are attached, by the pod's UID.
	attached map[string]bool
	// bound has the claims that are bound.
	bound map[string]bool
}

// Errorf makes faults a assert.TestingT.
func (f *faults) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *faults) step() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kill > 0 {
		if f.kill--; f.kill == 0 {
			f.kill = -1
		}
	}
	switch {
	case f.kill < 0:
		return errors.New("killed")
	case f.fail > 0:
		f.fail--
		return errors.New("a step that fails")
	default:
		return nil
	}
}

func (f *faults) attach(uid types.UID, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on {
		f.attached[string(uid)] = true
	} else {
		delete(f.attached, string(uid))
	}
}

func (f *faults) bind(claim string, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bound[claim] = on
}

// modelClaims are the claims of an API server, which fail as steps do. Behind each is a directory of
// its name.
type modelClaims struct {
	volume.ClaimBase
	*volumeModel
}

func (c modelClaims) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID(name)}}
	claim.Spec.VolumeName, claim.Status.Phase = name, v1.ClaimPending
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bound[name] {
		claim.Status.Phase = v1.ClaimBound
	}
	return claim, nil
}

func (c modelClaims) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: types.UID(name)}
	if path := filepath.Join(c.disks, name); name == "x" {
		pv.Spec.Local = &v1.LocalVolumeSource{Path: path}
	} else {
		pv.Spec.HostPath = &v1.HostPathVolumeSource{Path: path}
	}
	return pv, nil
}

// modelDisk is a plugin with steps: it writes down what it attaches, attaches it and mounts it.
type modelDisk struct{ *volumeModel }

func (modelDisk) Name() string               { return "example.com/disk" }
func (modelDisk) Supports(v *v1.Volume) bool { return v.FlexVolume != nil }

func (d modelDisk) SetUp(_ context.Context, req volume.SetUpRequest) (runtime.Volume, error) {
	ready := runtime.Volume{HostPath: req.Dir}
	if err := d.step(); err != nil {
		return ready, err
	}
	if err := os.WriteFile(filepath.Join(req.StateDir, "disk"), []byte(req.Pod.UID), 0o600); err != nil {
		return ready, err
	}
	if err := d.step(); err != nil {
		return ready, err
	}
	d.attach(req.Pod.UID, true)
	if err := d.step(); err != nil {
		return ready, err
	}
	if err := os.MkdirAll(req.Dir, 0o700); err != nil {
		return ready, err
	}
	if mounted, err := req.Mounted(); err != nil || mounted || !d.mounts {
		return ready, err
	}
	if err := syscall.Mount("tmpfs", req.Dir, "tmpfs", 0, "size=64k"); err != nil {
		return ready, err
	}
	return ready, d.step()
}

func (d modelDisk) TearDown(_ context.Context, req volume.TearDownRequest) error {
	if err := d.step(); err != nil {
		return err
	}
	if err := req.Unmount(); err != nil {
		return err
	}
	if err := d.step(); err != nil {
		return err
	}
	uid, err := os.ReadFile(filepath.Join(req.StateDir, "disk"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	d.attach(types.UID(uid), false)
	return errors.Join(err, d.step())
}

// modelVolumes are the volumes of the agent, with faults, and with a look at what must never
// happen.
type modelVolumes struct {
	volume.Manager
	*volumeModel
}

func (v modelVolumes) SetUp(ctx context.Context, pod *v1.Pod, dir string) (map[string]runtime.Volume, error) {
	if err := v.step(); err != nil {
		return nil, err
	}
	return v.Manager.SetUp(ctx, pod, dir)
}

func (v modelVolumes) TearDown(ctx context.Context, ref runtime.PodRef, dir string) error {
	v.check(ref, dir)
	if err := v.step(); err != nil {
		return err
	}
	return v.Manager.TearDown(ctx, ref, dir)
}

func (v modelVolumes) Remove(ctx context.Context, ref runtime.PodRef, dir string) error {
	v.check(ref, dir)
	if err := v.step(); err != nil {
		return err
	}
	return v.Manager.Remove(ctx, ref, dir)
}

func (v modelVolumes) check(ref runtime.PodRef, dir string) {
	assert.Equal(v, string(ref.UID), filepath.Base(dir))
	assert.Empty(v, v.rt.Running(fake.Target{UID: ref.UID}), "volumes are taken down while containers of the pod run")
}

func (m *volumeModel) start() {
	m.mu.Lock()
	m.kill = 0
	m.mu.Unlock()
	m.node = startNodeWith(m.t, m.root, m.rt, func(o *kubeletkit.Options) {
		o.API.Objects, o.API.Claims, o.Volumes.Plugins = m.store, modelClaims{volumeModel: m}, []volume.Plugin{modelDisk{m}}
		o.Override.Volumes = kubeletkit.Wrap(func(v volume.Manager) volume.Manager { return modelVolumes{v, m} })
	})
	m.push()
}

func (m *volumeModel) push() {
	m.node.source.Set(slices.Collect(maps.Values(m.pods))...)
	var all []metav1.Object
	for name, data := range m.data {
		all = append(all,
			&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Data: map[string]string{"key": data}},
			&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Data: map[string][]byte{"key": []byte(data)}})
	}
	m.store.Set(all...)
}

// subPaths is the bit of a pod whose container mounts a sub-path of each volume.
const subPaths = 1 << 6

// pod returns a pod with some of the types of volumes.
func (m *volumeModel) pod(name string, kinds int, object string) *v1.Pod {
	m.uids++
	uid := types.UID(fmt.Sprintf("%s-%d", name, m.uids))
	ref := v1.LocalObjectReference{Name: object}
	sources := []v1.VolumeSource{
		{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref}},
		{Secret: &v1.SecretVolumeSource{SecretName: object}},
		{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref}}}}},
		{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}},
		{FlexVolume: &v1.FlexVolumeSource{Driver: "example.com/disk"}},
		{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: object}},
	}
	pod := testpod.New(name, testpod.Namespace("default"), testpod.UID(uid), testpod.Restart(v1.RestartPolicyAlways),
		testpod.Containers("main"))
	for i, source := range sources {
		if source.EmptyDir != nil && !m.mounts {
			continue // a tmpfs needs root
		}
		if kinds&(1<<i) != 0 {
			testpod.Volumes(v1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: source})(pod)
		}
	}
	if kinds&subPaths != 0 {
		mounts := pod.Spec.Containers[0].VolumeMounts
		for i := range mounts {
			mounts[i].SubPath = "key" // a file of the objects, else a directory
		}
	}
	return pod
}

// leave leaves a directory as a kubelet does that was stopped while a pod ran, and whose pod
// went before the next start.
func (m *volumeModel) leave() {
	m.uids++
	dir := filepath.Join(m.root, "pods", fmt.Sprintf("kubelet-%d", m.uids))
	m.foes = append(m.foes, dir)
	for _, sub := range []string{
		"volumes/kubernetes.io~secret/s/..2026_11_22_00_00_00.1", "volumes/kubernetes.io~csi/pvc-1/mount",
		"volumes/kubernetes.io~empty-dir/d",
		"plugins/kubernetes.io~empty-dir/wrapped_s", "volume-subpaths/d/main/0", "volumeDevices/kubernetes.io~csi",
		"containers/main",
	} {
		require.NoError(m.t, os.MkdirAll(filepath.Join(dir, sub), 0o750))
	}
	require.NoError(m.t, os.WriteFile(filepath.Join(dir, "etc-hosts"), nil, 0o600))
	if m.mounts {
		for _, at := range []string{"volumes/kubernetes.io~secret/s", "volumes/kubernetes.io~csi/pvc-1/mount"} {
			require.NoError(m.t, syscall.Mount("tmpfs", filepath.Join(dir, at), "tmpfs", 0, "size=64k"))
		}
		require.NoError(m.t, syscall.Mount(filepath.Join(dir, "volumes/kubernetes.io~empty-dir/d"),
			filepath.Join(dir, "volume-subpaths/d/main/0"), "", syscall.MS_BIND, ""))
	}
}

// modelOp is something that happens on the node.
type modelOp struct {
	what, pod, object string
	n                 int
}

func (m *volumeModel) do(op modelOp) {
	switch op.what {
	case "add":
		if m.pods[op.pod] == nil {
			m.pods[op.pod] = m.pod(op.pod, op.n, op.object)
		}
	case "remove":
		delete(m.pods, op.pod)
	case "change":
		m.data[op.object] = fmt.Sprint(op.n)
	case "drop":
		delete(m.data, op.object)
	case "claim":
		m.bind(op.object, op.n%2 == 0)
	case "exit":
		m.rt.Exit(fake.Target{Pod: op.pod}, int32(op.n%2))
	case "sandbox dies":
		m.rt.KillSandbox(fake.Target{Pod: op.pod})
	case "runtime fails":
		call := []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox",
			"RemovePodSandbox", "ListPodSandbox"}[op.n%7]
		m.rt.Inject(fake.Fault{Call: call, Times: 1 + op.n%32/7, Err: errors.New("a call that fails")})
	case "steps fail":
		m.mu.Lock()
		m.fail = op.n % 4
		m.mu.Unlock()
	case "kill":
		m.mu.Lock()
		m.kill = 1 + op.n%12
		m.mu.Unlock()
		m.push()
		m.node.after(3 * time.Second)
		m.node.stop(m.t)
		if op.n%3 == 0 {
			m.leave()
		}
		m.start()
	case "restart":
		m.node.stop(m.t)
		m.start()
	}
	m.push()
}

// rests checks that disk and mounts are exactly what the pods desire.
func (m *volumeModel) rests() {
	m.node.after(15 * time.Minute)
	entries, err := os.ReadDir(filepath.Join(m.root, "pods"))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(m.t, err)
	}
	var dirs, want, mounted, disks []string
	for _, e := range entries {
		dirs = append(dirs, e.Name())
	}
	for name, pod := range m.pods {
		want = append(want, string(pod.UID))
		assert.Len(m, m.rt.Running(fake.Target{UID: pod.UID}), 1, "%s", name)
		for i, mount := range pod.Spec.Containers[0].VolumeMounts {
			if mount.SubPath != "" {
				mounted = append(mounted, filepath.Join(m.root, "pods", string(pod.UID), "volume-subpaths", mount.Name,
					"main", strconv.Itoa(i)))
			}
		}
		for _, v := range pod.Spec.Volumes {
			at := func(plugin string) string {
				return volume.PlaceOf(filepath.Join(m.root, "pods", string(pod.UID)), plugin, v.Name).Dir
			}
			dir, object := "", ""
			switch {
			case v.ConfigMap != nil:
				dir, object = at(volume.ConfigMap{}.Name()), v.ConfigMap.Name
			case v.Secret != nil:
				dir, object = at(volume.Secret{}.Name()), v.Secret.SecretName
			case v.Projected != nil:
				dir, object = at(volume.Projected{}.Name()), v.Projected.Sources[0].ConfigMap.Name
			case v.EmptyDir != nil:
				dir = at(volume.EmptyDir{}.Name())
			case v.PersistentVolumeClaim != nil:
				continue
			default:
				dir = at(modelDisk{}.Name())
				disks = append(disks, string(pod.UID))
			}
			assert.DirExists(m, dir)
			if v.ConfigMap == nil {
				mounted = append(mounted, dir)
			}
			if object != "" {
				data, err := os.ReadFile(filepath.Join(dir, "key"))
				assert.NoError(m, err)
				assert.Equal(m, m.data[object], string(data))
			}
		}
	}
	for _, name := range []string{"x", "y"} {
		assert.FileExists(m, filepath.Join(m.disks, name, "of-the-disk"))
	}
	assert.ElementsMatch(m, want, dirs)
	m.mu.Lock()
	attached := slices.Collect(maps.Keys(m.attached))
	m.mu.Unlock()
	assert.ElementsMatch(m, disks, attached)
	if m.mounts {
		assert.ElementsMatch(m, mounted, mountsBelow(m.t, m.root))
	}
}

func mountsBelow(t *testing.T, dir string) (points []string) {
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

// Whatever happens, in the end disk and mounts are what the pods desire, no volume was taken
// down under a container, and a kubelet's leftovers are gone.
func TestVolumesOfANodeInRandomOrder(t *testing.T) {
	mounts := os.Getuid() == 0
	if mounts {
		dir := t.TempDir()
		if mounts = syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k") == nil; mounts {
			require.NoError(t, syscall.Unmount(dir, 0))
		}
	}
	ops := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) modelOp {
		return modelOp{
			rapid.SampledFrom([]string{"add", "add", "remove", "change", "drop", "claim", "claim", "exit",
				"sandbox dies", "runtime fails", "steps fail", "kill", "kill", "restart"}).Draw(rt, "what"),
			rapid.SampledFrom([]string{"web", "db"}).Draw(rt, "pod"),
			rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "object"),
			rapid.IntRange(1, 127).Draw(rt, "n"),
		}
	}), 1, 20)
	rapid.Check(t, func(rt *rapid.T) {
		list := ops.Draw(rt, "ops")
		pauses := rapid.SliceOfN(rapid.IntRange(0, 4000), len(list), len(list)).Draw(rt, "pauses")
		var m *volumeModel
		dir := testenv.MemoryDir(t)
		defer func() { assert.NoError(t, os.RemoveAll(dir)) }()
		root, disks := filepath.Join(dir, "root"), filepath.Join(dir, "disks")
		require.NoError(t, os.Mkdir(root, 0o700))
		require.NoError(t, os.Mkdir(disks, 0o700))
		for _, name := range []string{"x", "y"} {
			require.NoError(t, os.Mkdir(filepath.Join(disks, name), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(disks, name, "of-the-disk"), nil, 0o600))
		}
		synctest.Test(t, func(t *testing.T) {
			m = &volumeModel{
				faults: faults{attached: map[string]bool{}, bound: map[string]bool{}}, t: t, root: root, disks: disks,
				rt: fake.New(fake.Options{}), store: objects.New(),
				pods: map[string]*v1.Pod{}, data: map[string]string{"x": "1"}, mounts: mounts,
			}
			m.start()
			for i, op := range list {
				m.do(op)
				m.node.after(time.Duration(pauses[i]) * time.Millisecond)
			}
			m.mu.Lock()
			m.fail = 0
			m.mu.Unlock()
			m.data = map[string]string{"x": "last", "y": "last"}
			for name := range m.data {
				m.bind(name, true)
			}
			m.push()
			m.rests()
			m.pods = map[string]*v1.Pod{}
			m.push()
			m.rests()
			m.node.stop(t)
		})
		if len(m.errors) > 0 {
			rt.Fatal(strings.Join(m.errors, "\n"))
		}
	})
}
