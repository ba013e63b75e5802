package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of a [Reconciler]; the zero value is valid.
type Options struct {
	// Sources have what volumes of secrets, config maps and tokens contain.
	Sources
	// Plugins set up volumes of other types than the default plugins do. They
	// are tried before these, in this order; the first that supports a volume sets it
	// up.
	Plugins []Plugin
	// Persistent set up persistent volumes of other types than hostPath and local, behind claims, and the volumes in
	// the specs of pods that they support inline. The first that supports a volume sets it up. They need the default
	// plugins.
	Persistent []PersistentPlugin
	// NoDefaultPlugins leaves the default plugins out: [HostPath], [EmptyDir], [ConfigMap],
	// [Secret], [DownwardAPI], [Projected], [Claim] and [Image].
	NoDefaultPlugins bool
	// EmptyDirModes obeys the field mode of volumes of the type emptyDir (kubelet: the feature gate
	// EmptyDirVolumeMode). Default: they have mode 0777.
	EmptyDirModes bool
	// FileOwners obeys the fields user and defaultUser of volumes of files (KEP-5936; kubelet: the feature gate
	// AtomicWriteVolumeUserFields). Default: the files belong to the user of the agent, and tokens and certificates
	// to that of the containers if they have one.
	FileOwners bool
	// OnlyOncePod mounts only volumes that are ReadWriteOncePod with an SELinux label, and refuses different labels for
	// them only. Those for other volumes are measured (kubelet: without the feature gate SELinuxMount).
	OnlyOncePod bool
	// Observer receives events about volumes that are set up all the same, and one about the node if volumes in memory
	// may be swapped to the disk. Failures are not among them: they are errors. It receives the measurements
	// [SetUpCall], [TearDownCall], [SELinuxConflict] and [SELinuxAdmitted].
	runtime.Observer
}

// Reconciler is the default [Manager]. It finds on disk what is set up; it depends on nothing
// that it holds in memory.
type Reconciler struct {
	plugins []Plugin
	// stateless has the names of the default plugins whose TearDown need not be called for
	// volumes that have left no directory.
	stateless map[string]bool
	observer  runtime.Observer
	before    steps
	// checks are the calls for paths that may not answer.
	checks *pathChecks
	// swapChecked is true when the first volumes are set up.
	swapChecked atomic.Bool
	maySwap     func() bool
}

var _ Manager = (*Reconciler)(nil)

// New returns a manager. It fails if a plugin is nil, has a name that is no
// qualified name, or has the name of another.
func New(opts Options) (*Reconciler, error) {
	opts.Observer, _ = opts.Queued()
	plugins, stateless, checks := slices.Clone(opts.Plugins), map[string]bool{}, newPathChecks()
	if !opts.NoDefaultPlugins {
		src := opts.Sources
		src.seen, src.paths, src.checks, src.event = newSeen(), &flow.Locks{}, checks, opts.Event
		src.owners, src.seLinux = opts.FileOwners, seLinux{src.FileLabel, opts.OnlyOncePod, opts.Measure}
		var once sync.Once
		src.onDisk = func(err error) {
			once.Do(func() {
				opts.Logger.Info(
					"Secrets and tokens of pods are on disk, since no file system in memory can be mounted",
					"reason", err.Error())
			})
		}
		for _, p := range []Plugin{HostPath{src.checks},
			EmptyDir{src.Allocatable, src.NodeAllocatable, opts.EmptyDirModes},
			ConfigMap{src}, Secret{src}, DownwardAPI{src}, Projected{src}, Image{}} {
			plugins, stateless[p.Name()] = append(plugins, p), true
		}
		if len(opts.Persistent) > 0 {
			src.persistent = newPersistentVolumes(opts.Persistent, opts.before, opts.Event, src.seLinux)
			for _, p := range opts.Persistent {
				if p != nil {
					plugins = append(plugins, ofPlugin{p, src.persistent})
				}
			}
		}
		plugins = append(plugins, Claim{src})
	}
	seen := map[string]bool{}
	var errs []error
	for i, p := range opts.Persistent {
		if p == nil {
			errs = append(errs, fmt.Errorf("volume: Options.Persistent[%d] is nil", i))
		}
	}
	if opts.NoDefaultPlugins && len(opts.Persistent) > 0 {
		errs = append(errs, errors.New("volume: Options.Persistent needs the default plugins"))
	}
	for i, p := range plugins {
		if p == nil {
			errs = append(errs, fmt.Errorf("volume: Options.Plugins[%d] is nil", i))
			continue
		}
		name := p.Name()
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("volume: plugin name %q: %s", name, strings.Join(problems, "; ")))
		}
		switch {
		case !seen[name]:
		case i < len(opts.Plugins):
			errs = append(errs, fmt.Errorf("volume: two plugins are named %s", name))
		default:
			errs = append(errs, fmt.Errorf("volume: two plugins are named %s, and one is a default plugin; "+
				"Options.NoDefaultPlugins leaves these out", name))
		}
		seen[name] = true
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Reconciler{
		plugins: plugins, stateless: stateless, observer: opts.Observer, before: opts.before, checks: checks,
		maySwap: memoryMaySwap,
	}, nil
}

// warnOfSwap emits an event about the node, the first time, if the kernel may write volumes in memory to the
// disk. Reason and text are kubelet's (cm/container_manager_linux.go).
func (m *Reconciler) warnOfSwap() {
	if m.maySwap != nil && !m.swapChecked.Swap(true) && m.maySwap() {
		m.observer.Event.Emit(runtime.Event{Type: v1.EventTypeWarning, Reason: "PossibleMemoryBackedVolumesOnDisk",
			Message: "The tmpfs noswap option is not supported. " +
				"Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be " +
				"considered secure."})
	}
}

// SetUp implements [Manager].
func (m *Reconciler) SetUp(ctx context.Context, pod *v1.Pod, podDir string) (map[string]runtime.Volume, error) {
	if len(pod.Spec.Volumes) == 0 {
		return nil, nil
	}
	m.warnOfSwap()
	ctx = withWork(withSteps(ctx, m.before))
	out := make(map[string]runtime.Volume, len(pod.Spec.Volumes))
	var errs []error
	desired, actual := map[string]int{}, map[string]int{}
	for v := range podspec.UsedVolumes(&pod.Spec) {
		ready, name, err := m.setUp(ctx, pod, v, podDir)
		if name != "" {
			desired[name]++
			if err == nil {
				actual[name]++
			}
		}
		if err != nil {
			errs = append(errs, &SetUpError{Pod: runtime.RefOf(pod), Volume: v.Name, Err: err})
		}
		if outdated := (*OutdatedError)(nil); err == nil || errors.As(err, &outdated) {
			out[v.Name] = ready
		}
	}
	m.observer.Measure.Emit(PodVolumes{runtime.RefOf(pod), desired, actual})
	return out, errors.Join(errs...)
}

// setUp sets up a volume. name is that of its plugin in measurements, if it has one.
func (m *Reconciler) setUp(ctx context.Context, pod *v1.Pod, v *v1.Volume,
	podDir string) (ready runtime.Volume, name string, err error) {
	p := m.pluginFor(v)
	if p == nil {
		return ready, "", unsupported(v.Name, typeOf(v))
	}
	place := PlaceOf(podDir, p.Name(), v.Name)
	if !m.stateless[p.Name()] {
		if err := m.before.step("make the directories of the plugin"); err != nil {
			return ready, p.Name(), err
		}
		// First, so that TearDown is called even if the agent ends in SetUp.
		if err := os.MkdirAll(place.StateDir, 0o750); err != nil {
			return ready, p.Name(), err
		}
		if err := os.MkdirAll(filepath.Dir(place.Dir), 0o750); err != nil {
			return ready, p.Name(), err
		}
	}
	ctx, as := withMeasured(ctx, p.Name())
	call := underway.Begin(ctx, "", "volume", v.Name)
	defer call.End()
	began := time.Now()
	err = runtime.Recover(func() (err error) {
		ready, err = p.SetUp(call, SetUpRequest{Pod: pod, Volume: v, Place: place})
		return err
	})
	m.observer.Measure.Emit(SetUpCall{as.name, time.Since(began), err})
	return ready, as.name, err
}

func (m *Reconciler) pluginFor(v *v1.Volume) Plugin {
	for _, p := range m.plugins {
		if p.Supports(v) {
			return p
		}
	}
	return nil
}

// The directories below a pod's directory, as kubelet names them.
const (
	volumesDir  = "volumes"
	devicesDir  = "volumeDevices"
	stateDir    = "plugins"
	subPathsDir = "volume-subpaths"
)

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
