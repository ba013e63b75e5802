package gc_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// disk is the client of an agent, with a disk that others fill too.
type disk struct {
	*cri.Runtime
	m *imageModel
}

func (d disk) ImageFsInfo(context.Context) (runtime.ImageFsInfo, error) {
	return runtime.ImageFsInfo{Images: runtime.FsUsage{CapacityBytes: modelDisk, AvailableBytes: d.m.available()}}, nil
}

const (
	modelDisk = 1000
	modelHigh = 80
	modelLow  = 50
	modelMin  = 2 * time.Minute
)

// modelImage is what the model knows of an image.
type modelImage struct {
	size      int64
	pinned    bool
	firstSeen time.Time // by a collector; zero if none has seen it
	lastUsed  time.Time
}

// modelPod is a pod with one container.
type modelPod struct {
	pod     *v1.Pod
	running bool
}

// imageModel drives a runtime with pods and images, and a collector that is restarted now
// and then, and says what may be removed.
type imageModel struct {
	rt     *fake.Runtime
	agent  disk
	gc     *gc.ImageGC
	file   string
	dir    string
	images map[string]*modelImage
	pods   map[string]*modelPod
	others int64
	seq    int
}

func (m *imageModel) available() int64 {
	info, err := m.rt.ImageFsInfo(context.Background())
	if err != nil {
		panic(err)
	}
	return max(modelDisk-m.others-info.Images.UsedBytes, 0)
}

// sync returns the names of the images that are not in the runtime any more.
func (m *imageModel) sync(t *script) (gone []string) {
	list, err := m.rt.ListImages(context.Background())
	require.NoError(t, err)
	there := map[string]bool{}
	for _, i := range list.Images {
		there[i.Tags[0]] = true
	}
	for name := range m.images {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	return gone
}

func (m *imageModel) used(name string) bool {
	for _, p := range m.pods {
		if p.pod.Spec.Containers[0].Image == name {
			return true
		}
	}
	return false
}

// start starts an agent, which is a client and a collector.
func (m *imageModel) start(t *script) {
	rs, is := m.rt.Clients()
	m.agent = disk{cri.New(rs, is, cri.Options{}), m}
	var err error
	m.gc, err = gc.NewImageGC(m.agent, gc.ImageOptions{
		ImagePolicy: gc.ImagePolicy{HighThresholdPercent: modelHigh, LowThresholdPercent: modelLow, MinAge: modelMin},
		StateFile:   m.file,
	})
	require.NoError(t, err)
}

// seen is called after each list of a collector.
func (m *imageModel) seen(at time.Time) {
	for name, i := range m.images {
		if i.firstSeen.IsZero() {
			i.firstSeen = at
			if !i.lastUsed.IsZero() {
				i.firstSeen = i.lastUsed
			}
		}
		for _, p := range m.pods {
			if p.running && p.pod.Spec.Containers[0].Image == name {
				i.lastUsed = at
			}
		}
	}
}

func (m *imageModel) startPod(t *script) {
	name := fmt.Sprintf("app-%d:1", t.pick(10))
	m.seq++
	pod := fake.Pods(1, 1)[0]
	pod.Name = fmt.Sprintf("pod-%d", m.seq)
	pod.UID = types.UID(pod.Name)
	pod.Spec.Containers[0].Image = name
	if m.images[name] == nil {
		size := int64(1 + t.pick(256))
		m.rt.AddImage(fake.Image{Name: name, Size: uint64(size)})
		m.images[name] = &modelImage{size: size}
	}
	_, err := m.agent.SyncPod(context.Background(), runtime.PodSync{Pod: pod, Dir: filepath.Join(m.dir, "pod"),
		Host: m.rt.Host()})
	require.NoError(t, err)
	m.images[name].lastUsed = time.Now()
	m.pods[pod.Name] = &modelPod{pod, true}
}

func (m *imageModel) draw(t *script, ok func(*modelPod) bool) (string, *modelPod) {
	var names []string
	for name, p := range m.pods {
		if ok(p) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	slices.Sort(names)
	name := names[t.pick(len(names))]
	return name, m.pods[name]
}

func (m *imageModel) stopPod(t *script) {
	name, p := m.draw(t, func(p *modelPod) bool { return p.running })
	if p == nil {
		return
	}
	m.rt.Exit(fake.Target{Pod: name}, 0)
	p.running = false
	m.images[p.pod.Spec.Containers[0].Image].lastUsed = time.Now()
}

// removePod removes a dead pod as the collector of containers does.
func (m *imageModel) removePod(t *script) {
	name, p := m.draw(t, func(p *modelPod) bool { return !p.running })
	if p == nil {
		return
	}
	status, err := m.agent.InspectPod(context.Background(), runtime.RefOf(p.pod))
	require.NoError(t, err)
	for _, c := range status.Containers {
		require.NoError(t, m.agent.RemoveContainer(context.Background(), c.ID))
	}
	for _, s := range status.Sandboxes {
		require.NoError(t, m.agent.RemoveSandbox(context.Background(), s.ID))
	}
	delete(m.pods, name)
}

// collect makes a collection and checks it.
func (m *imageModel) collect(t *script, all bool) {
	before, left := maps.Clone(m.images), m.available()
	m.seen(time.Now())
	now := time.Now()
	var err error
	if all {
		err = m.gc.DeleteUnusedImages(context.Background())
		require.NoError(t, err)
	} else {
		err = m.gc.GarbageCollect(context.Background())
	}
	removed := m.sync(t)
	for _, name := range removed {
		require.False(t, m.images[name].pinned, "%s is pinned", name)
		require.False(t, m.used(name), "%s is in use", name)
		require.GreaterOrEqual(t, now.Sub(m.images[name].firstSeen), modelMin, "%s is young", name)
		delete(m.images, name)
	}
	// What remains that could have gone too.
	var spare []string
	for name, i := range m.images {
		if !i.pinned && !m.used(name) && now.Sub(i.firstSeen) >= modelMin {
			spare = append(spare, name)
		}
	}
	usage := 100 - int(left*100/modelDisk)
	enough := m.available() >= modelDisk*(100-modelLow)/100
	switch {
	case all:
		require.Empty(t, spare)
	case usage < modelHigh:
		require.NoError(t, err)
		require.Empty(t, removed, "the usage is %d %%", usage)
	case err == nil:
		require.True(t, enough, "the low threshold is reached")
	default:
		require.ErrorContains(t, err, "Failed to free sufficient space")
		require.False(t, enough)
		require.Empty(t, spare, "the low threshold can be reached")
	}
	if all || usage < modelHigh {
		return
	}
	order := func(a, b string) int {
		return cmp.Or(before[a].lastUsed.Compare(before[b].lastUsed), before[a].firstSeen.Compare(before[b].firstSeen))
	}
	for _, gone := range removed {
		for _, stays := range spare {
			require.LessOrEqual(t, order(gone, stays), 0, "%s was removed, and %s is still there", gone, stays)
		}
	}
	if len(removed) > 0 && enough {
		last, size := slices.MaxFunc(removed, order), int64(0)
		for _, name := range removed { // of equals any can be the last
			if order(name, last) == 0 {
				size = max(size, before[name].size)
			}
		}
		require.Less(t, m.available()-size, int64(modelDisk*(100-modelLow)/100), "one less was enough")
	}
}

// script has the random choices of a run. It is the [require.TestingT] of the model.
type script struct {
	bytes []byte
	err   error
}

// pick takes a number below n, which is at most 256, from the script.
func (s *script) pick(n int) int {
	if len(s.bytes) == 0 {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return int(b) % n
}

func (s *script) Errorf(format string, args ...any) { s.err = fmt.Errorf(format, args...) }
func (s *script) FailNow()                          { panic(s) }

// playImages runs a script against the model, and returns what went wrong.
func playImages(t *testing.T, dir string, bytes []byte) error {
	s := &script{bytes: bytes}
	file := filepath.Join(dir, "state")
	_ = os.Remove(file)
	synctest.Test(t, func(*testing.T) {
		defer func() {
			if v := recover(); v != nil && v != any(s) {
				panic(v)
			}
		}()
		m := &imageModel{
			rt: fake.New(fake.Options{Dir: dir, Calls: -1}), file: file, dir: dir,
			images: map[string]*modelImage{}, pods: map[string]*modelPod{},
		}
		m.start(s)
		for len(s.bytes) > 0 {
			time.Sleep(time.Second) // no two times of use are equal
			m.step(s)
		}
	})
	return s.err
}

func (m *imageModel) step(t *script) {
	preview := func() {
		m.seen(time.Now())
		_, err := m.gc.Preview(context.Background(), gc.ImagesToThresholds)
		require.NoError(t, err)
	}
	switch t.pick(12) {
	case 0, 1, 2:
		m.startPod(t)
	case 3:
		m.stopPod(t)
	case 4:
		m.removePod(t)
	case 5, 6:
		m.seq++
		name, size := fmt.Sprintf("pulled-%d:1", m.seq), int64(1+t.pick(200))
		m.images[name] = &modelImage{size: size, pinned: t.pick(10) == 0}
		m.rt.AddImage(fake.Image{Name: name, Size: uint64(size), Pinned: m.images[name].pinned})
	case 7:
		m.others = 2 * int64(t.pick(256))
	case 8: // the agent
		preview()
		m.start(t)
	case 9:
		m.collect(t, false)
	case 10:
		preview()
		time.Sleep(modelMin)
		m.collect(t, false)
	case 11:
		m.collect(t, t.pick(3) == 0)
	}
}

// Random pods, pulls, images and restarts: nothing that is in use or pinned goes, the least
// recently used goes first, and the low threshold is reached when it can be.
func TestImageCollectorModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		if err := playImages(t, dir, rapid.SliceOfN(rapid.Byte(), 60, 100).Draw(rt, "script")); err != nil {
			rt.Fatal(err)
		}
	})
}

func FuzzImageCollector(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		script := make([]byte, 200)
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		require.NoError(t, playImages(t, t.TempDir(), script[:min(len(script), 1000)]))
	})
}
