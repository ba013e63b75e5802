package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ErrUnsupported says that no plugin knows the type of a volume.
var ErrUnsupported = errors.New("volume type not supported")

// Plugin sets up volumes of one type. Its methods are idempotent and are called
// side by side for different pods.
type Plugin interface {
	// Supports reports whether the volume is of the plugin's type.
	Supports(v *v1.Volume) bool
	// SetUp makes the volume ready. dir is the volume's own directory, which does not
	// exist unless an earlier SetUp made it.
	SetUp(ctx context.Context, pod *v1.Pod, v *v1.Volume, dir string) (runtime.Volume, error)
	// Name is the plugin's name, as in "kubernetes.io/empty-dir".
	Name() string
}

// Options are the settings of a [Manager].
type Options struct {
	// Plugins in the order in which they are asked. nil: HostPath and EmptyDir.
	Plugins []Plugin
	// Logger. Default: discards.
	Logger logr.Logger
}

// Manager sets up the volumes of pods.
type Manager struct {
	plugins []Plugin
	log     logr.Logger
}

// New returns a manager. It fails if two plugins have the same name.
func New(opts Options) (*Manager, error) {
	if opts.Plugins == nil {
		opts.Plugins = []Plugin{HostPath{}, EmptyDir{}}
	}
	if opts.Logger.IsZero() {
		opts.Logger = logr.Discard()
	}
	seen := map[string]bool{}
	for _, p := range opts.Plugins {
		if seen[p.Name()] {
			return nil, fmt.Errorf("volume: two plugins are named %s", p.Name())
		}
		seen[p.Name()] = true
	}
	return &Manager{plugins: opts.Plugins, log: opts.Logger}, nil
}

// SetUp makes all volumes of the pod ready and returns them by name. Its error
// joins one for each volume that is not; it wraps [ErrUnsupported] for a type
// that no plugin knows.
func (m *Manager) SetUp(ctx context.Context, pod *v1.Pod, podDir string) (map[string]runtime.Volume, error) {
	if len(pod.Spec.Volumes) == 0 {
		return nil, nil
	}
	out := make(map[string]runtime.Volume, len(pod.Spec.Volumes))
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		p := m.pluginFor(v)
		if p == nil {
			errs = append(errs, fmt.Errorf("volume %q: %w: %s; this node runs pods with %s only", v.Name, ErrUnsupported, typeOf(v), m.supported()))
			continue
		}
		ready, err := p.SetUp(ctx, pod, v, volumeDir(podDir, p, v))
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %q: %w", v.Name, err))
			continue
		}
		out[v.Name] = ready
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

func (m *Manager) pluginFor(v *v1.Volume) Plugin {
	for _, p := range m.plugins {
		if p.Supports(v) {
			return p
		}
	}
	return nil
}

func (m *Manager) supported() string {
	names := make([]string, len(m.plugins))
	for i, p := range m.plugins {
		names[i] = p.Name()
	}
	return strings.Join(names, ", ")
}

// TearDown unmounts whatever is mounted below the pod's directory and removes the
// contents of its volumes. The volumes must not be in use any more.
func (m *Manager) TearDown(_ context.Context, ref runtime.PodRef, podDir string) error {
	if err := unmountBelow(podDir); err != nil {
		return fmt.Errorf("pod %s: unmounting its volumes: %w", ref, err)
	}
	for _, sub := range []string{volumesDir, subPathsDir} {
		if err := os.RemoveAll(filepath.Join(podDir, sub)); err != nil {
			return fmt.Errorf("pod %s: removing its volumes: %w", ref, err)
		}
	}
	return nil
}

// Remove takes down the volumes below the pod's directory and removes it.
func (m *Manager) Remove(ctx context.Context, ref runtime.PodRef, podDir string) error {
	if err := m.TearDown(ctx, ref, podDir); err != nil {
		return err
	}
	if err := os.RemoveAll(podDir); err != nil {
		return fmt.Errorf("pod %s: removing its directory: %w", ref, err)
	}
	return nil
}

// The directories below a pod's directory, as kubelet names them.
const (
	volumesDir  = "volumes"
	subPathsDir = "volume-subpaths"
)

// volumeDir is <pod dir>/volumes/<plugin>/<volume>, the plugin's slash escaped.
func volumeDir(podDir string, p Plugin, v *v1.Volume) string {
	return filepath.Join(podDir, volumesDir, strings.ReplaceAll(p.Name(), "/", "~"), v.Name)
}

// typeOf is the name of the volume's type, as in the API: "nfs", "persistentVolumeClaim".
func typeOf(v *v1.Volume) string {
	src := reflect.ValueOf(v.VolumeSource)
	for i := range src.NumField() {
		if !src.Field(i).IsNil() {
			name, _, _ := strings.Cut(src.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "none"
}
