//go:build unix

package volume

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// model is a node with pods and objects that change, steps that fail and an agent that is
// killed, and what must be on disk and mounted when it rests.
type model struct {
	ClaimBase
	t       *testing.T
	pods    string
	host    string // a directory of the host that volumes show
	disks   string // the directories of the persistent volumes
	manager *Reconciler
	objects map[string]map[string]string // data of config maps and secrets by name; those that exist
	tokens  int                          // the version of the tokens
	claims  map[string]claimState        // by the name of the claim; those that exist
	away    map[string]bool              // the persistent volumes whose disk is not there
	desired map[string]*v1.Pod
	// ready has what the volumes of a pod had at its last sync, by the name of the volume.
	ready map[string]map[string]map[string]string
	// volumes are the results of the last sync of a pod, unless the agent was killed in it.
	volumes map[string]map[string]kruntime.Volume
	// bound has the volumes of a pod whose claim was found once.
	bound map[string]map[string]bool
	// subPaths has the content of each mount of a sub-path of a pod, "" for a directory, by where it is.
	subPaths map[string]map[string]string
	// mounts means that the agent may mount.
	mounts bool
	// kill counts down the steps until the agent is killed; 0 means never.
	kill int
}

func (m *model) data(name string) (map[string]string, error) {
	data, ok := m.objects[name]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("object"), name)
	}
	return data, nil
}

func (m *model) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	data, err := m.data(name)
	return &v1.ConfigMap{Data: data}, err
}

func (m *model) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	data, err := m.data(name)
	s := &v1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s, err
}

func (m *model) Token(context.Context,
	string, string, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: fmt.Sprint("token ",
		m.tokens)}}, nil
}

// restart starts another agent.
func (m *model) restart() {
	m.kill = 0
	before := func(string) error {
		if m.kill > 0 {
			if m.kill--; m.kill == 0 {
				m.kill = -1
			}
		}
		if m.kill < 0 { // nothing happens any more
			return errKilled
		}
		return nil
	}
	var err error
	m.manager, err = New(Options{Sources: Sources{Objects: m, Tokens: m, Claims: m, before: before}})
	require.NoError(m.t, err)
	m.manager.before = before
}

func (m *model) dir(name string) string { return filepath.Join(m.pods, name) }

// sync is a sync of a pod, in which the agent may be killed.
func (m *model) sync(name string) {
	pod := m.desired[name]
	got, err := m.manager.SetUp(m.t.Context(), pod, m.dir(name))
	if m.kill < 0 {
		assert.ErrorIs(m.t, err, errKilled)
		m.restart()
		m.afterKill(pod)
		return
	}
	want, fails := m.want(pod)
	assert.Equal(m.t, fails, err != nil, "%v", err)
	assert.ElementsMatch(m.t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	m.ready[name], m.volumes[name] = want, got
	for _, v := range pod.Spec.Volumes {
		if _, ok := want[v.Name]; ok && v.PersistentVolumeClaim != nil {
			m.bound[name][v.Name] = true
		}
	}
}

// afterKill finds out how far a sync has come. The files of each volume are the old ones or
// the new ones.
func (m *model) afterKill(pod *v1.Pod) {
	want, _ := m.want(pod)
	now := map[string]map[string]string{}
	delete(m.volumes, pod.Name)
	for _, v := range pod.Spec.Volumes {
		place := PlaceOf(m.dir(pod.Name), m.manager.pluginFor(&v).Name(), v.Name)
		if claim := v.PersistentVolumeClaim; claim != nil {
			_, found := readBound(filepath.Join(place.StateDir, "volume"))
			if found != m.bound[pod.Name][v.Name] {
				assert.True(m.t, found && m.claims[claim.ClaimName] == claimBound && !m.away[claim.ClaimName])
			}
			m.bound[pod.Name][v.Name] = found
			continue
		}
		dir := place.Dir
		if v.EmptyDir != nil || v.HostPath != nil || !isWritten(dir) {
			continue
		}
		has := contentOf(m.t, filepath.Join(dir, dataLink))
		assert.Contains(m.t, []map[string]string{m.ready[pod.Name][v.Name], want[v.Name]}, has)
		now[v.Name] = has
	}
	m.ready[pod.Name] = now
}

// want returns the files of the volumes of a pod after a sync, and whether one is missing or
// out of date. Volumes without files have none.
func (m *model) want(pod *v1.Pod) (files map[string]map[string]string, fails bool) {
	files = map[string]map[string]string{}
	old := m.ready[pod.Name]
	for _, v := range pod.Spec.Volumes {
		var names []string
		optional := false
		switch {
		case v.ConfigMap != nil:
			names, optional = []string{v.ConfigMap.Name}, ptr.Deref(v.ConfigMap.Optional, false)
		case v.Secret != nil:
			names, optional = []string{v.Secret.SecretName}, ptr.Deref(v.Secret.Optional, false)
		case v.DownwardAPI != nil:
			files[v.Name] = map[string]string{"label": pod.Labels["l"], "annotation": pod.Annotations["a"]}
			continue
		case v.Projected != nil && v.Projected.Sources[0].ServiceAccountToken != nil:
			files[v.Name] = map[string]string{"token": fmt.Sprint("token ", m.tokens)}
			continue
		case v.PersistentVolumeClaim != nil:
			name := v.PersistentVolumeClaim.ClaimName
			switch found, away := m.bound[pod.Name][v.Name], m.away[name]; {
			case !found && (m.claims[name] != claimBound || away), away && name == "local":
				fails = true
			default: // a volume of the host that was there once may be away
				files[v.Name], fails = nil, fails || away
			}
			continue
		case v.Projected != nil:
			names = []string{v.Projected.Sources[0].ConfigMap.Name, v.Projected.Sources[1].Secret.Name}
		default:
			files[v.Name] = nil
			continue
		}
		content, missing := map[string]string{}, false
		for _, name := range names {
			data, ok := m.objects[name]
			missing = missing || !ok && !optional
			maps.Copy(content, data)
		}
		switch before, written := old[v.Name]; {
		case !missing:
			files[v.Name] = content
		case written:
			files[v.Name], fails = before, true
		default:
			fails = true
		}
	}
	return files, fails
}

// check compares disk and mounts with the pods, all of which have been synced or removed.
func (m *model) check() {
	entries, err := os.ReadDir(m.pods)
	require.NoError(m.t, err)
	for _, e := range entries {
		assert.Contains(m.t, m.desired, e.Name(), "the directory of a pod that is gone")
	}
	var mounted []string
	for name, pod := range m.desired {
		for _, v := range pod.Spec.Volumes {
			want, ok := m.ready[name][v.Name]
			if !ok {
				continue
			}
			place := PlaceOf(m.dir(name), m.manager.pluginFor(&v).Name(), v.Name)
			if v.HostPath != nil || v.PersistentVolumeClaim != nil {
				continue
			}
			assert.DirExists(m.t, place.Dir)
			if v.EmptyDir != nil {
				if v.EmptyDir.Medium == v1.StorageMediumMemory {
					mounted = append(mounted, place.Dir)
				}
				assert.FileExists(m.t, filepath.Join(place.Dir, "of-the-pod"))
				continue
			}
			assert.Equal(m.t, want, visible(m.t, place.Dir))
			tidy(m.t, place.Dir)
			if v.ConfigMap == nil {
				mounted = append(mounted, place.Dir)
			}
		}
	}
	for name := range m.desired {
		for at, content := range m.subPaths[name] {
			if m.mounts {
				mounted = append(mounted, at)
			}
			if m.mounts && content != "" {
				assert.Equal(m.t, content, contentOfFile(m.t, at), "a sub-path keeps its content")
			}
		}
	}
	points, err := mountsBelow(m.pods)
	require.NoError(m.t, err)
	for _, p := range points {
		assert.Contains(m.t, mounted, p)
	}
	if m.mounts {
		assert.Len(m.t, points, len(mounted))
	}
	for _, name := range []string{"local", "host"} {
		dir := filepath.Join(m.disks, name)
		if m.away[name] {
			dir += ".away"
		}
		assert.Equal(m.t, "of the disk", contentOfFile(m.t, filepath.Join(dir, "file")))
	}
	data, err := os.ReadFile(filepath.Join(m.host, "file"))
	require.NoError(m.t, err)
	assert.Equal(m.t, "of the host", string(data))
}

// put has the pod write into its emptyDir.
func (m *model) put(name string) {
	for _, v := range m.desired[name].Spec.Volumes {
		dir := PlaceOf(m.dir(name), EmptyDir{}.Name(), v.Name).Dir
		if _, err := os.Stat(dir); v.EmptyDir != nil && err == nil {
			require.NoError(m.t, os.WriteFile(filepath.Join(dir, "of-the-pod"), nil, 0o600))
		}
	}
}

// TestModel has pods come, go and change their labels, tokens refreshed, objects appear, change and vanish, and the
// agent killed before any step of a set-up or a tear-down. When all have been synced, disk and mounts are exactly what
// they are to be.
func TestModel(t *testing.T) {
	probe := testenv.MemoryDir(t)
	mounts := mountTmpfs(probe, 0, access{0o777, -1}) == nil
	require.NoError(t, unmountBelow(probe))
	keys := rapid.SampledFrom([]string{"a", "b", "c.txt"})
	data := rapid.MapOf(keys, rapid.SampledFrom([]string{"", "1", "2", strings.Repeat("x", 5000)}))
	names := rapid.SampledFrom([]string{"x", "y", "z"})
	disks := rapid.SampledFrom([]string{"local", "host"})
	states := rapid.SampledFrom([]claimState{claimFails, claimPending, claimNoVolume, claimBound, claimBound})
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			t: t, pods: testenv.MemoryDir(t), host: testenv.MemoryDir(t), disks: testenv.MemoryDir(t),
			objects: map[string]map[string]string{}, desired: map[string]*v1.Pod{},
			ready: map[string]map[string]map[string]string{}, mounts: mounts, claims: map[string]claimState{},
			away:    map[string]bool{},
			volumes: map[string]map[string]kruntime.Volume{}, bound: map[string]map[string]bool{},
			subPaths: map[string]map[string]string{},
		}
		for _, name := range []string{"local", "host"} {
			require.NoError(t, os.Mkdir(filepath.Join(m.disks, name), 0o777))
			require.NoError(t, os.WriteFile(filepath.Join(m.disks, name, "file"), []byte("of the disk"), 0o600))
		}
		require.NoError(t, os.WriteFile(filepath.Join(m.host, "file"), []byte("of the host"), 0o600))
		m.restart()
		defer func() {
			m.kill = 0
			for name := range m.desired {
				assert.NoError(t, m.manager.Remove(context.WithoutCancel(t.Context()),
					kruntime.PodRef{UID: types.UID(name)}, m.dir(name)))
			}
		}()
		makePod := func(name string) *v1.Pod {
			pod := testpod.New(name, testpod.UID(types.UID(name)), testpod.Containers("main"))
			for i := range rapid.IntRange(1, 4).Draw(rt, "volumes") {
				v := v1.Volume{Name: fmt.Sprintf("v%d", i)}
				of, optional := names.Draw(rt, "object"), rapid.Bool().Draw(rt, "optional")
				switch rapid.IntRange(0, 7).Draw(rt, "type") {
				case 0:
					v.ConfigMap = &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: of},
						Optional: &optional}
				case 1:
					v.Secret = &v1.SecretVolumeSource{SecretName: of, Optional: &optional}
				case 2:
					v.Projected = &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
						{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: of}}},
						{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: names.Draw(rt, "second")}}},
					}}
				case 3:
					v.EmptyDir = &v1.EmptyDirVolumeSource{}
					if optional && mounts {
						v.EmptyDir.Medium = v1.StorageMediumMemory
					}
				case 4:
					v.HostPath = &v1.HostPathVolumeSource{Path: m.host, Type: ptr.To(v1.HostPathDirectory)}
				case 5:
					v.DownwardAPI = &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
						{Path: "label", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['l']"}},
						{Path: "annotation", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['a']"}},
					}}
				case 6:
					v.Projected = &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
						{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}
				case 7:
					v.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: disks.Draw(rt, "claim")}
				}
				testpod.Volumes(v)(pod)
			}
			return pod
		}
		anyPod := func() (string, bool) {
			if len(m.desired) == 0 {
				return "", false
			}
			return rapid.SampledFrom(slices.Sorted(maps.Keys(m.desired))).Draw(rt, "pod"), true
		}
		maybeKill := func() {
			if rapid.Bool().Draw(rt, "kill") {
				m.kill = rapid.IntRange(1, 25).Draw(rt, "step")
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				name := rapid.SampledFrom([]string{"p1", "p2", "p3"}).Draw(rt, "name")
				if m.desired[name] == nil {
					m.desired[name], m.bound[name], m.subPaths[name] = makePod(name), map[string]bool{},
						map[string]string{}
				}
			},
			"sync": func(*rapid.T) {
				if name, ok := anyPod(); ok {
					maybeKill()
					m.sync(name)
					m.kill = 0
					m.put(name)
				}
			},
			"sub-paths": func(*rapid.T) {
				if name, ok := anyPod(); ok {
					maybeKill()
					m.subPath(name, rapid.SampledFrom([]string{"s", "s/deep", "other"}).Draw(rt, "path"))
					m.kill = 0
				}
			},
			"claim":   func(*rapid.T) { m.claims[disks.Draw(rt, "claim")] = states.Draw(rt, "state") },
			"unclaim": func(*rapid.T) { delete(m.claims, disks.Draw(rt, "claim")) },
			"disk": func(*rapid.T) {
				name := disks.Draw(rt, "disk")
				from, to := filepath.Join(m.disks, name), filepath.Join(m.disks, name+".away")
				if m.away[name] {
					from, to = to, from
				}
				require.NoError(t, os.Rename(from, to))
				m.away[name] = !m.away[name]
			},
			"remove": func(*rapid.T) {
				name, ok := anyPod()
				if !ok {
					return
				}
				maybeKill()
				err := m.manager.Remove(t.Context(), kruntime.PodRef{UID: types.UID(name)}, m.dir(name))
				if m.kill < 0 {
					assert.ErrorIs(t, err, errKilled)
					m.restart()
					assert.NoError(t, m.manager.Remove(t.Context(), kruntime.PodRef{UID: types.UID(name)}, m.dir(name)))
				} else {
					assert.NoError(t, err)
				}
				m.kill = 0
				delete(m.desired, name)
				delete(m.ready, name)
				delete(m.volumes, name)
			},
			// A pod that is in use is never changed: its source delivers another one.
			"change": func(*rapid.T) {
				if name, ok := anyPod(); ok {
					pod := m.desired[name].DeepCopy()
					pod.Labels = map[string]string{"l": rapid.SampledFrom([]string{"", "1", "2"}).Draw(rt, "label")}
					pod.Annotations = map[string]string{"a": rapid.SampledFrom([]string{"", "1", "2"}).Draw(rt,
						"annotation")}
					m.desired[name] = pod
				}
			},
			"token":   func(*rapid.T) { m.tokens++ },
			"object":  func(*rapid.T) { m.objects[names.Draw(rt, "object")] = data.Draw(rt, "data") },
			"drop":    func(*rapid.T) { delete(m.objects, names.Draw(rt, "object")) },
			"restart": func(*rapid.T) { m.restart() },
			"": func(*rapid.T) {
				for name := range m.desired {
					m.sync(name)
					m.put(name)
				}
				m.check()
				if t.Failed() {
					rt.FailNow()
				}
			},
		})
	})
}
