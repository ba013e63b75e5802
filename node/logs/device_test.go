package logs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/images/records"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// The disk of a device. It is a value, except for logs: these are files, of which a byte counts as logScale bytes.
const (
	mb, gb     = 1000 * 1000, 1000 * mb
	diskSize   = 8 * gb
	highMark   = diskSize / 100 * 85
	logScale   = 1 << 10
	logMaxSize = 10 << 10 // 10 MiB of the disk
	logFiles   = 5
	// system is what the system takes.
	system = 1 * gb
	// imagePeriod is the time between two collections of images, and the default of gc.
	imagePeriod = 5 * time.Minute
)

// load is a pod of the device.
type load struct {
	pod *v1.Pod
	// began is when it was added, and until when it is to be removed.
	began, until time.Time
	// removed means that the source does not have it any more.
	removed bool
	// rate is how many bytes a second it writes to its log.
	rate int64
	// layer is the size of the writable layer of each instance, grows its growth in a second.
	layer, grows int64
	// runs is how long an instance runs; 0: until it is stopped.
	runs time.Duration
	// partial are bytes that are not written yet: less than one of a file.
	partial int64
}

func (l *load) image() string { return l.pod.Spec.Containers[0].Image }

// steady reports whether the pod runs all the time.
func (l *load) steady() bool { return l.runs == 0 }

// device is a node with one disk, and the agents that run on it one after the other.
type device struct {
	*fake.Runtime
	t      *testing.T
	random *rand.Rand
	root   string
	source *podconfigfake.Source
	watch  *watch

	mu    sync.Mutex
	loads map[types.UID]*load
	// collected is the end of the last collection of images.
	collected time.Time

	// unwritten is the time for which logs are to be written.
	unwritten time.Duration
	// logs is the size of all logs when they were read last.
	logs atomic.Int64
	// written is what was written to the disk since the last collection of images.
	written atomic.Int64
	// removals of images, rotations, starts of containers and evictions are counted.
	removals, rotations, starts, evicted atomic.Int64
	// absent has records of images that do not exist, since when.
	absent map[string]time.Time

	// agent runs since the time up. evicts means that it evicts pods.
	agent  *kubeletkit.Agent
	evicts bool
	up     time.Time
	stop   func()
}

func newDevice(t *testing.T, seed uint64) *device {
	d := &device{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), root: testenv.MemoryDir(t),
		source: podconfigfake.NewSource("test"),
		loads:  map[types.UID]*load{}, absent: map[string]time.Time{},
	}
	d.Runtime = fake.New(fake.Options{Calls: -1, Behavior: func(c fake.Container) fake.Behavior {
		l := d.load(c.Pod.UID)
		d.written.Add(l.layer)
		d.starts.Add(1)
		return fake.Behavior{RunFor: l.runs, ExitCode: 1, Output: "began\n"}
	}})
	return d
}

func (d *device) logsDir() string { return filepath.Join(d.root, "logs") }

func (d *device) load(uid types.UID) *load {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loads[uid]
}

// start starts an agent.
func (d *device) start(evicts bool) {
	kept, err := records.New(d.root, records.Options{})
	require.NoError(d.t, err)
	w := &watch{paths: map[string]bool{}, written: make(chan fswatch.Changes, 100)}
	manager, err := New(d, Options{
		Dir: d.logsDir(), MaxSize: logMaxSize, MaxFiles: logFiles,
		watch: func() (watcher, error) { return w, nil },
	})
	require.NoError(d.t, err)
	opts := kubeletkit.Options{
		NodeName: "device", RootDir: d.root, Runtime: d, Sources: []podconfig.Source{d.source},
		Host: &runtime.Host{Hostname: "device", IPs: []string{"192.0.2.1"}, PodLogsDir: d.logsDir()},
		Join: []lifecycle.Component{manager},
	}
	opts.Images.Records = kept
	opts.Workers.ResyncInterval = time.Hour
	opts.ImageGC.Keep = []string{keptImage}
	opts.Observe.Measure = d.measure
	opts.Observe.Event = func(runtime.Event) {}
	if d.evicts = evicts; evicts {
		thresholds, err := eviction.Parse(eviction.Config{Hard: map[string]string{"imagefs.available": "15%"}})
		require.NoError(d.t, err)
		evictions, err := eviction.New(defender{d}, defender{d},
			eviction.Options{Thresholds: thresholds, EvictStatic: true})
		require.NoError(d.t, err)
		opts.Join = append(opts.Join, evictions)
	}
	d.agent, err = kubeletkit.New(opts)
	require.NoError(d.t, err)
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan error, 1)
	agent := d.agent
	go func() { done <- agent.Run(ctx) }()
	d.watch, d.up = w, time.Now()
	d.stop = func() {
		cancel()
		require.NoError(d.t, <-done)
	}
}

// add adds a pod.
func (d *device) add(name, image string, l load, options ...testpod.Option) *load {
	l.pod = testpod.New(name,
		append([]testpod.Option{testpod.Grace(1), testpod.Container(v1.Container{Name: "main", Image: image})},
			options...)...)
	l.began = time.Now()
	d.mu.Lock()
	d.loads[l.pod.UID] = &l
	d.mu.Unlock()
	d.source.Put(l.pod)
	return &l
}

// removeEnded removes the pods whose time has come.
func (d *device) removeEnded(now time.Time) {
	var ended []types.UID
	d.mu.Lock()
	for uid, l := range d.loads {
		if !l.removed && !l.until.After(now) {
			l.removed = true
			ended = append(ended, uid)
		}
	}
	d.mu.Unlock()
	if len(ended) > 0 {
		d.source.Remove(ended...)
	}
}

// desired returns the pods that the source has, in the order of their names.
func (d *device) desired(now time.Time) (out []*load) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.loads {
		if l.until.After(now) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *load) int { return strings.Compare(a.pod.Name, b.pod.Name) })
	return out
}

// used returns what is used of the disk.
func (d *device) used() int64 {
	info, err := d.Runtime.ImageFsInfo(context.Background())
	require.NoError(d.t, err)
	used := system + info.Images.UsedBytes + d.logs.Load()
	for _, i := range d.Instances(fake.Target{}) {
		d.mu.Lock()
		used += d.loads[i.Pod.UID].layer
		d.mu.Unlock()
	}
	return used
}

// ImageFsInfo implements [runtime.ImageService]: images are on the disk with all else.
func (d *device) ImageFsInfo(context.Context) (runtime.ImageFsInfo, error) {
	used := d.used()
	return runtime.ImageFsInfo{Images: runtime.FsUsage{Mountpoint: "/", CapacityBytes: diskSize,
		AvailableBytes: max(0, diskSize-used), UsedBytes: used}}, nil
}

// Check replaces the call each five seconds.
func (d *device) Check(context.Context) error { return nil }

// RemoveImage implements [runtime.ImageService].
func (d *device) RemoveImage(ctx context.Context, id string, listed runtime.Mark) error {
	if err := d.Runtime.RemoveImage(ctx, id, listed); err != nil {
		return err
	}
	d.removals.Add(1)
	if id == idOf(keptImage) {
		d.t.Errorf("the image %s was removed, which is kept", keptImage)
	}
	for _, i := range d.Instances(fake.Target{}) {
		if image := d.load(i.Pod.UID).image(); id == idOf(image) {
			d.t.Errorf("the image %s was removed, which %s uses", image, i.String())
		}
	}
	return nil
}

// measure counts. It gives images that were pulled their size.
func (d *device) measure(m runtime.Measurement) {
	switch m := m.(type) {
	case images.Pull:
		d.pulled(m)
	case gc.ImageCollection:
		d.imagesCollected(m)
	case Rotated:
		if m.Err == nil {
			d.rotations.Add(1)
		}
	case eviction.Eviction:
		d.evicted.Add(1)
	}
}

func (d *device) pulled(p images.Pull) {
	if !p.Shared {
		d.AddImage(fake.Image{Name: p.Image, Size: sizeOf(p.Image)})
		d.written.Add(int64(sizeOf(p.Image)))
	}
}

func (d *device) imagesCollected(c gc.ImageCollection) {
	if errors.Is(c.Err, context.Canceled) {
		return
	}
	d.mu.Lock()
	d.collected = time.Now()
	d.mu.Unlock()
	d.written.Store(0)
	if !d.evicts { // else pods may be evicted, and not images removed
		assert.NoError(d.t, c.Err)
		assert.Less(d.t, d.used(), int64(highMark), "after a collection")
	}
}

// write writes the logs of the time that has passed.
func (d *device) write(passed time.Duration) {
	for _, i := range d.Running(fake.Target{}) {
		l := d.load(i.Pod.UID)
		d.mu.Lock()
		l.layer += l.grows * int64(passed/time.Second)
		d.mu.Unlock()
		d.written.Add(l.grows * int64(passed/time.Second))
		bytes := l.partial + l.rate*int64(passed/time.Second)
		l.partial = bytes % logScale
		path := filepath.Join(d.logsDir(), i.Pod.LogDirName(), i.Container, fmt.Sprintf("%d.log", i.Attempt))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the container ends at this moment, or its log is being rotated
		}
		require.NoError(d.t, err)
		_, err = f.WriteString(strings.Repeat("x", int(bytes/logScale)))
		require.NoError(d.t, errors.Join(err, f.Close()))
		d.logs.Add(bytes - l.partial)
		d.written.Add(bytes - l.partial)
		d.watch.wrote(path)
	}
}

// readLogs returns the sizes of the files of logs, by container and by the path of the log.
func (d *device) readLogs() map[string]map[string][]int64 {
	all, sum := map[string]map[string][]int64{}, int64(0)
	dirs, err := filepath.Glob(filepath.Join(d.logsDir(), "*", "*"))
	require.NoError(d.t, err)
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		require.NoError(d.t, err)
		byLog := map[string][]int64{}
		for _, e := range entries {
			info, err := e.Info()
			require.NoError(d.t, err)
			attempt, _, _ := strings.Cut(e.Name(), ".")
			byLog[attempt] = append(byLog[attempt], info.Size())
			sum += info.Size() * logScale
		}
		all[dir] = byLog
	}
	d.logs.Store(sum)
	return all
}

// idOf returns the ID of an image in the runtime.
func idOf(image string) string {
	sum := sha256.Sum256([]byte(image))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// recordOf returns the name of the file with the record of an image.
func recordOf(id string) string { return "sha256-" + strings.TrimPrefix(idOf(id), "sha256:") }

// watch is the watcher of an agent.
type watch struct {
	mu      sync.Mutex
	paths   map[string]bool
	written chan fswatch.Changes
}

func (w *watch) Add(path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paths[path] = true
	_, err := os.Lstat(path)
	return err
}

func (w *watch) Remove(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.paths, path)
}

func (w *watch) Changes() <-chan fswatch.Changes { return w.written }
func (w *watch) Close()                          {}

// wrote reports a write to a file.
func (w *watch) wrote(path string) {
	w.mu.Lock()
	watched := w.paths[path]
	w.mu.Unlock()
	if watched {
		select {
		case w.written <- writeTo(path):
		default: // the agent does not run
		}
	}
}

// defender is the sensor and the meter of evictions.
type defender struct{ d *device }

func (f defender) Read(context.Context, []eviction.Threshold) (eviction.Readings, error) {
	return eviction.Readings{eviction.ImageFsAvailable: {Available: max(0, diskSize-f.d.used()), Capacity: diskSize,
		At: time.Now()}}, nil
}

func (f defender) Layout(context.Context) (eviction.Layout, error) { return eviction.OneDisk, nil }

func (f defender) Watch(ctx context.Context, _ []eviction.Threshold, _ func()) error {
	<-ctx.Done()
	return nil
}

func (f defender) Measure(_ context.Context, _ lifecycle.Node, _ eviction.Signal,
	pods []eviction.Pod) error {
	none := int64(0)
	for i := range pods {
		f.d.mu.Lock()
		layer := f.d.loads[pods[i].Pod.UID].layer
		f.d.mu.Unlock()
		u := &pods[i].Usage
		u.Writable.Bytes, u.Logs.Bytes, u.Volumes.Bytes = &layer, &none, &none
	}
	return nil
}
