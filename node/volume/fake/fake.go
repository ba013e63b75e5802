// Package fake has a [volume.Plugin] and a [volume.Manager] that set nothing
// up. They record their calls, and a test can have calls fail or wait.
//
//	disk := fake.NewPlugin("example.com/disk", func(v *v1.Volume) bool { return v.NFS != nil })
//	volumes, err := volume.New(volume.Options{Plugins: []volume.Plugin{disk}})
//	disk.Fail(fake.SetUp, web.UID, 1, errors.New("no route to host"))
//
//	mounts := fake.NewVolumes()
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

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
)

// The methods, for Fail, Hold and UntilCalled. A plugin has SetUp and TearDown.
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

	mu sync.Mutex
	up []string
}

var _ volume.Plugin = (*Plugin)(nil)

// NewPlugin returns a plugin of that name. It supports the volumes for which supports
// returns true; nil means all.
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

// Up returns the volumes that are set up, as "<UID of the pod>/<volume>", in the
// order in which they were.
func (p *Plugin) Up() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.up)
}

// SetUp implements [volume.Plugin]. The volume is Place.Dir, which is not made, and
// belongs to the pod.
func (p *Plugin) SetUp(ctx context.Context, req volume.SetUpRequest) (runtime.Volume, error) {
	ref := runtime.RefOf(req.Pod)
	err := p.Do(ctx, calls.Call{Method: SetUp, Pods: []runtime.PodRef{ref}, Detail: req.Volume.Name}, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if name := upName(ref, req.Volume.Name); !slices.Contains(p.up, name) {
			p.up = append(p.up, name)
		}
		return nil
	})
	if err != nil {
		return runtime.Volume{}, err
	}
	return runtime.Volume{HostPath: req.Dir}, nil
}

// TearDown implements [volume.Plugin].
func (p *Plugin) TearDown(ctx context.Context, req volume.TearDownRequest) error {
	return p.Do(ctx, calls.Call{Method: TearDown, Pods: []runtime.PodRef{req.Pod}, Detail: req.Volume}, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		name := upName(req.Pod, req.Volume)
		p.up = slices.DeleteFunc(p.up, func(up string) bool { return up == name })
		return nil
	})
}

func upName(pod runtime.PodRef, volume string) string { return string(pod.UID) + "/" + volume }

// Volumes is a [volume.Manager]. It is safe for concurrent use.
type Volumes struct {
	calls.Log
	volume.Base // Usage and VolumeStats

	mu sync.Mutex
	// up has the pods whose volumes are set up, in the order in which they were.
	up       []types.UID
	exceeded map[types.UID]string
}

var _ volume.Manager = (*Volumes)(nil)

// NewVolumes returns a manager whose calls succeed at once.
func NewVolumes() *Volumes { return &Volumes{exceeded: map[types.UID]string{}} }

// SetExceeded sets what Exceeded returns for the pod.
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

// SetUp implements [volume.Manager]. The path of each volume is
// <podDir>/volumes/fake/<name>, where nothing is made.
func (m *Volumes) SetUp(ctx context.Context, pod *v1.Pod, podDir string) (map[string]runtime.Volume, error) {
	out := make(map[string]runtime.Volume, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		out[name] = runtime.Volume{HostPath: filepath.Join(podDir, "volumes", "fake", name)}
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

// TearDown implements [volume.Manager].
func (m *Volumes) TearDown(ctx context.Context, ref runtime.PodRef, _ string) error {
	return m.down(ctx, TearDown, ref)
}

// Remove implements [volume.Manager]. The directory of the pod stays.
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

// Exceeded returns what [Volumes.SetExceeded] has set.
func (m *Volumes) Exceeded(ctx context.Context, pod *v1.Pod, _ string) (message string, err error) {
	err = m.Do(ctx, calls.Call{Method: Exceeded, Pods: []runtime.PodRef{runtime.RefOf(pod)}}, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		message = m.exceeded[pod.UID]
		return nil
	})
	return message, err
}

// SubPath returns the path below the volume, unchecked.
func (m *Volumes) SubPath(ctx context.Context, req runtime.SubPath) (string, error) {
	detail := req.Container + "[" + strconv.Itoa(req.Index) + "] " + req.VolumeName + "/" + req.Path
	err := m.Do(ctx, calls.Call{Method: SubPath, Pods: []runtime.PodRef{req.Pod}, Detail: detail}, nil)
	if err != nil {
		return "", err
	}
	return filepath.Join(req.Volume.HostPath, req.Path), nil
}
