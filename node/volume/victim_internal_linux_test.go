package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// victim is a pod whose agent is killed. It has a volume of each type that leaves something on
// disk or mounted.
type victim struct {
	pod  *v1.Pod
	dir  string // of the pod
	disk string // of the host, behind the volumes "host" and "local"
	// memory has the names of the volumes that are mounted, and objects those with files.
	memory, objects []string
}

// newVictim returns a pod with its own directories below root, and with volumes that are mounted if
// the agent may mount.
func newVictim(root, name string, mounts bool) *victim {
	v := &victim{
		dir: filepath.Join(root, "pods", name), disk: filepath.Join(root, "disks", name),
		objects: []string{"config", "secret"},
	}
	v.pod = testpod.New(name, testpod.Namespace("default"), testpod.UID(types.UID(name)), testpod.Containers("main"))
	group := int64(os.Getgid())
	if os.Getuid() == 0 {
		group = 4321
	}
	v.pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	v.pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}
	add := func(name string, src v1.VolumeSource) {
		testpod.Volumes(v1.Volume{Name: name, VolumeSource: src})(v.pod)
	}
	add("config", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}})
	add("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{}})
	add("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	add("made", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(v.disk, "made"),
		Type: ptr.To(v1.HostPathDirectoryOrCreate)}})
	add("host", v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "host"}})
	add("local", v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "local"}})
	if mounts {
		v.memory, v.objects = append(v.memory, "secret", "projected", "memory"), append(v.objects, "projected")
		add("projected",
			v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{Secret: &v1.SecretProjection{}}}}})
		add("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}})
		if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err == nil {
			v.memory = append(v.memory, "huge")
			add("huge", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}})
		}
	}
	return v
}

// plant makes the disks of the pod, with files that are not the agent's.
func (v *victim) plant(t *testing.T) {
	t.Helper()
	for _, name := range []string{"host", "local"} {
		dir := filepath.Join(v.disk, name, "deep")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("of the disk"), 0o600))
	}
}

// versioned has each object, with files that have the version.
type versioned string

func (o versioned) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{"a": string(o), "b": string(o)}}, nil
}

func (o versioned) Secret(context.Context, string, string) (*v1.Secret, error) {
	return &v1.Secret{Data: map[string][]byte{"a": []byte(o), "b": []byte(o)}}, nil
}

// disks has claims for the directories below it.
type disks string

func (d disks) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID(name)
	claim.Spec.VolumeName, claim.Status.Phase = name, v1.ClaimBound
	return claim, ctx.Err()
}

func (d disks) UpdateStatus(_ context.Context, old, _ *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return old, ErrUnsupported
}

func (d disks) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.ClaimRef = name, &v1.ObjectReference{UID: types.UID(name)}
	path := filepath.Join(string(d), name)
	switch name {
	case "host":
		pv.Spec.HostPath = &v1.HostPathVolumeSource{Path: path}
	case "local":
		pv.Spec.Local = &v1.LocalVolumeSource{Path: path}
	default:
		return nil, apierrors.NewNotFound(v1.Resource("persistentvolumes"), name)
	}
	return pv, ctx.Err()
}

// agent returns a manager of an agent that was just started.
func (v *victim) agent(version string, before steps) (*Reconciler, error) {
	return New(Options{Sources: Sources{Objects: versioned(version), Claims: disks(v.disk), before: before}})
}

// setUp does what is done at a start of the pod's container.
func (v *victim) setUp(ctx context.Context, m *Reconciler) (map[string]kruntime.Volume, error) {
	ready, err := m.SetUp(ctx, v.pod, v.dir)
	if err != nil {
		return nil, err
	}
	for i, name := range []string{"disk", "config", "local", "memory"} {
		if _, ok := ready[name]; !ok {
			continue // the agent may not mount
		}
		path := "sub/deep"
		if ready[name].ReadOnly {
			path = "a"
		}
		if _, err := m.SubPath(ctx, kruntime.SubPath{
			Pod: kruntime.RefOf(v.pod), Container: "main", Index: i, VolumeName: name, Volume: ready[name],
			Path: path, Dir: v.dir,
		}); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// What the pod does itself between the steps of the agent.
const (
	podWrites = "the pod writes"
	podEnds   = "the pod ends"
)

// live sets the pod up with two versions of its objects, by two agents, and removes it.
func (v *victim) live(ctx context.Context, before steps) error {
	for _, version := range []string{"1", "2"} {
		m, err := v.agent(version, before)
		if err != nil {
			return err
		}
		ready, err := v.setUp(ctx, m)
		if err != nil {
			return err
		}
		for name := range ready {
			if err := v.write(ready, name); err != nil {
				return err
			}
		}
		if err := before.step(podWrites); err != nil {
			return err
		}
	}
	if err := before.step(podEnds); err != nil {
		return err
	}
	m, err := v.agent("2", before)
	if err != nil {
		return err
	}
	return m.Remove(ctx, kruntime.PodRef{UID: v.pod.UID}, v.dir)
}

// write has the pod write to its volume.
func (v *victim) write(ready map[string]kruntime.Volume, name string) error {
	file := filepath.Join(ready[name].HostPath, "of-the-pod")
	if _, err := os.Stat(file); err == nil || ready[name].ReadOnly {
		return nil
	}
	err := os.WriteFile(file, []byte(v.pod.Name), 0o600)
	if errors.Is(err, syscall.EINVAL) { // a file on huge pages can only be mapped; it is there
		return nil
	}
	return err
}

// isReady checks that an agent that has set the pod up has done all, and has kept what the pod
// has written.
func (v *victim) isReady(t *testing.T, ready map[string]kruntime.Volume, version string, wrote bool) {
	t.Helper()
	for _, name := range v.objects {
		assert.Equal(t, map[string]string{"a": version, "b": version}, visible(t, ready[name].HostPath))
		tidy(t, ready[name].HostPath)
	}
	for _, name := range v.memory {
		mounted, err := isMountPoint(ready[name].HostPath)
		require.NoError(t, err)
		assert.True(t, mounted, name)
	}
	for name, volume := range ready {
		if wrote && !volume.ReadOnly {
			assert.FileExists(t, filepath.Join(volume.HostPath, "of-the-pod"), name)
		}
	}
	want, err := os.Stat(ready["disk"].HostPath)
	require.NoError(t, err)
	assert.Equal(t, os.ModeDir|os.ModeSetgid|0o777, want.Mode())
	for _, path := range []string{"sub", "sub/deep"} {
		info, err := os.Stat(filepath.Join(ready["disk"].HostPath, path))
		require.NoError(t, err)
		assert.Equal(t, want.Mode(), info.Mode(), path)
	}
	info, err := os.Stat(filepath.Join(v.disk, "local", "deep", "f"))
	require.NoError(t, err)
	assert.True(t, belongsTo(info, int(*v.pod.Spec.SecurityContext.FSGroup)))
	assert.Equal(t, os.FileMode(0o660), info.Mode())
}

// isGone checks that nothing of the pod is left, and that its disks are as it has left them.
func (v *victim) isGone(t *testing.T) {
	t.Helper()
	assert.NoDirExists(t, v.dir)
	for _, name := range []string{"host", "local"} {
		data, err := os.ReadFile(filepath.Join(v.disk, name, "deep", "f"))
		require.NoError(t, err)
		assert.Equal(t, "of the disk", string(data))
	}
	info, err := os.Stat(filepath.Join(v.disk, "host", "deep", "f"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode(), "a volume of the host keeps its modes")
}
