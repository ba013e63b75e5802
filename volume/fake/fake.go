// Package fake has a plugin for volumes and a manager of them that set nothing up,
// remember what they were asked for, and fail or wait when they are told to.
//
//	disk := fake.NewPlugin("example.com/disk", func(v *v1.Volume) bool { return v.NFS != nil })
//	volumes, err := volume.New(volume.Options{Plugins: []volume.Plugin{disk}})
//	disk.Fail(fake.SetUp, web.UID, 1, errors.New("no route to host"))
//
//	mounts := fake.NewVolumes() // in the place of a *volume.Manager
//	mounts.SetExceeded(web.UID, "data uses 2Gi of 1Gi")
package fake

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
	"github.com/kubeletkit/kubeletkit/volume"
)

// The methods, for Fail, Hold and UntilCalled. A plugin has SetUp only.
const (
	SetUp    = "SetUp"
	TearDown = "TearDown"
	Remove   = "Remove"
	Exceeded = "Exceeded"
	SubPath  = "SubPath"
)

// Plugin is a [volume.Plugin]. It is safe for concurrent use.
type Plugin struct {
	calls.Log
	name     string
	supports func(v *v1.Volume) bool
}

var _ volume.Plugin = (*Plugin)(nil)

// NewPlugin returns a plugin of that name for the volumes that supports is true of;
// nil stands for all.
func NewPlugin(name string, supports func(v *v1.Volume) bool) *Plugin {
	if supports == nil {
		supports = func(*v1.Volume) bool { return true }
	}
	return &Plugin{name: name, supports: supports}
}

// Name implements [volume.Plugin].
func (p *Plugin) Name() string { return p.name }

// Supports implements [volume.Plugin].
func (p *Plugin) Supports(v *v1.Volume) bool { return p.supports(v) }

// SetUp implements [volume.Plugin]: the volume is the directory, which it does not make,
// and belongs to the pod.
func (p *Plugin) SetUp(ctx context.Context, pod *v1.Pod, v *v1.Volume, dir string) (runtime.Volume, error) {
	err := p.Do(ctx, calls.Call{Method: SetUp, Pods: []runtime.PodRef{runtime.RefOf(pod)}, Detail: v.Name}, nil)
	if err != nil {
		return runtime.Volume{}, err
	}
	return runtime.Volume{HostPath: dir, Owned: true}, nil
}

// Volumes can stand wherever a [volume.Manager] does: as the volumes of a pod syncer, and
// as what removes directories of a sync handler. It is safe for concurrent use.
type Volumes struct {
	calls.Log

	mu sync.Mutex
	// up are the pods whose volumes were set up last, in order, and not taken down.
	up       []types.UID
	exceeded map[types.UID]string
}

// NewVolumes returns volumes with which all succeeds at once.
func NewVolumes() *Volumes { return &Volumes{exceeded: map[types.UID]string{}} }

// SetExceeded has Exceeded say this of the pod; "" says that nothing is.
func (m *Volumes) SetExceeded(uid types.UID, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.exceeded[uid] = message
}

// Up returns the pods whose volumes are set up, in the order in which they were.
func (m *Volumes) Up() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.up)
}

// SetUp gives each volume of the pod the path <podDir>/volumes/fake/<name>. Nothing is
// made there.
func (m *Volumes) SetUp(ctx context.Context, pod *v1.Pod, podDir string) (map[string]runtime.Volume, error) {
	out := make(map[string]runtime.Volume, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		out[name] = runtime.Volume{HostPath: filepath.Join(podDir, "volumes", "fake", name), Owned: true}
	}
	err := m.Do(ctx, calls.Call{Method: SetUp, Pods: []runtime.PodRef{runtime.RefOf(pod)}}, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !slices.Contains(m.up, pod.UID) {
			m.up = append(m.up, pod.UID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// TearDown takes the volumes of the pod down.
func (m *Volumes) TearDown(ctx context.Context, ref runtime.PodRef, _ string) error {
	return m.down(ctx, TearDown, ref)
}

// Remove takes the volumes of the pod down. The directory it leaves alone.
func (m *Volumes) Remove(ctx context.Context, ref runtime.PodRef, _ string) error {
	return m.down(ctx, Remove, ref)
}

func (m *Volumes) down(ctx context.Context, method string, ref runtime.PodRef) error {
	return m.Do(ctx, calls.Call{Method: method, Pods: []runtime.PodRef{ref}}, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.up = slices.DeleteFunc(m.up, func(uid types.UID) bool { return uid == ref.UID })
		return nil
	})
}

// Exceeded says what [Volumes.SetExceeded] has set.
func (m *Volumes) Exceeded(ctx context.Context, pod *v1.Pod, _ string) (message string, err error) {
	err = m.Do(ctx, calls.Call{Method: Exceeded, Pods: []runtime.PodRef{runtime.RefOf(pod)}}, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		message = m.exceeded[pod.UID]
		return nil
	})
	return message, err
}

// SubPath gives the path below the volume, unchecked.
func (m *Volumes) SubPath(ctx context.Context, req runtime.SubPath) (string, error) {
	detail := req.Container + "[" + strconv.Itoa(req.Index) + "] " + req.VolumeName + "/" + req.Path
	err := m.Do(ctx, calls.Call{Method: SubPath, Pods: []runtime.PodRef{req.Pod}, Detail: detail}, nil)
	if err != nil {
		return "", err
	}
	return filepath.Join(req.Volume.HostPath, req.Path), nil
}
