package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

const (
	keptImage = "registry.example/base/kept:1"
	// maxPods is the number of pods at a time, and maxImage the size of the largest image: what is in use is less than
	// the low mark.
	maxPods, maxImage = 5, 500 * mb
	// maxLayer is the size of the largest writable layer of a container, but for one.
	maxLayer = 50 * mb
	// fastRate is the rate of the fastest log, in bytes a second.
	fastRate = 4 * mb
	// slowStep is the time between two writes to other logs.
	slowStep = 5 * time.Minute
	// runawayRate is how fast a pod fills the disk with its writable layer.
	runawayRate = 5 * mb
	// downtime is the longest time between two agents, and firstCollection the time until an agent collects images.
	downtime, firstCollection = 3 * time.Minute, time.Minute
	// recordKept is how long a record stays after its image: a list that is older than 10 minutes does not remove it.
	recordKept = 10*time.Minute + 2*imagePeriod + downtime
)

// sizeOf returns the size of an image, from 20 MB on.
func sizeOf(image string) uint64 {
	var n int
	if _, err := fmt.Sscanf(image, "registry.example/app-%d:1", &n); err != nil {
		return 50 * mb
	}
	return 20*mb + uint64(n*37%100)*(maxImage-20*mb)/100
}

// change adds and removes pods, at random.
func (d *device) change(n int) {
	now := time.Now()
	d.removeEnded(now)
	if len(d.desired(now)) >= maxPods || d.random.IntN(20) > 0 {
		return
	}
	name, image := fmt.Sprintf("pod-%d", n), fmt.Sprintf("registry.example/app-%d:1", d.random.IntN(80))
	minutes := func(from, to int) time.Duration {
		return time.Duration(from+d.random.IntN(to-from)) * time.Minute
	}
	layer := int64(d.random.IntN(maxLayer/mb)) * mb
	switch d.random.IntN(20) {
	case 0: // a writer of megabytes a second
		d.add(name, image, load{until: now.Add(minutes(2, 4)), rate: fastRate / int64(1+d.random.IntN(3)),
			layer: layer})
	case 1, 2, 3, 4: // a crash loop
		d.add(name, image, load{until: now.Add(minutes(20, 120)), rate: 10_000, layer: layer, runs: 20 * time.Second},
			testpod.Restart(v1.RestartPolicyAlways))
	case 5, 6, 7, 8: // a job
		runs := minutes(1, 30)
		d.add(name, image, load{until: now.Add(runs + minutes(1, 30)), rate: 10_000, layer: layer, runs: runs},
			testpod.Restart(v1.RestartPolicyNever))
	default:
		rates := []int64{100, 1000, 10_000}
		d.add(name, image, load{until: now.Add(minutes(10, 600)), rate: rates[d.random.IntN(len(rates))], layer: layer},
			testpod.Restart(v1.RestartPolicyAlways))
	}
}

// pass lets a minute pass. Logs are written every five minutes, and each second while a pod writes fast.
func (d *device) pass() {
	step := slowStep
	for _, l := range d.desired(time.Now()) {
		if l.rate > mb || l.grows > 0 && d.evicted.Load() == 0 {
			step = time.Second
		}
	}
	if step == slowStep {
		time.Sleep(time.Minute)
		if d.unwritten += time.Minute; d.unwritten >= slowStep {
			d.write(d.unwritten)
			d.unwritten = 0
		}
	} else {
		d.write(d.unwritten)
		d.unwritten = 0
		for range time.Minute / step {
			time.Sleep(step)
			d.write(step)
		}
	}
	synctest.Wait()
}

// check asserts what holds at each minute.
func (d *device) check() {
	now := time.Now()
	logs := map[string]map[string][]int64{}
	if d.unwritten == 0 {
		logs = d.readLogs()
	}
	for dir, byLog := range logs {
		require.LessOrEqual(d.t, len(byLog), 3, "%s has logs of more than a running container, the one before, and "+
			"one that is being removed", dir)
		for attempt, sizes := range byLog {
			require.LessOrEqual(d.t, len(sizes), logFiles, "%s/%s.log", dir, attempt)
			for _, size := range sizes { // a log exceeds its limit by one write at most
				require.LessOrEqual(d.t, size, int64(logMaxSize+fastRate/logScale), "%s/%s.log", dir, attempt)
			}
		}
	}
	// A collection of images ends below the high mark. What is above it was written since then, and the next one comes
	// in time.
	used, written := d.used(), d.written.Load()
	d.mu.Lock()
	collected := d.collected
	d.mu.Unlock()
	if d.evicts {
		require.LessOrEqual(d.t, used, int64(highMark+runawayRate*10+maxLayer),
			"10 s of the pod that fills the disk, and the start of another one")
	} else {
		require.LessOrEqual(d.t, used, highMark+written, "%d written since %s", written, now.Sub(collected))
	}
	require.LessOrEqual(d.t, now.Sub(collected), imagePeriod+firstCollection+downtime)
	for _, l := range d.desired(now) {
		if d.evicts && (l.grows > 0 || l.began.After(d.up)) {
			continue // it is to be evicted, or may be refused while the node is under pressure
		}
		if l.steady() && now.Sub(l.began) > 2*time.Minute && now.Sub(d.up) > 2*time.Minute {
			require.Len(d.t, d.Running(fake.Target{Pod: l.pod.Name}), 1, "%s runs", l.pod.Name)
		}
	}
}

// checkRecords asserts that each image has a record, and each record an image, or had one a while ago.
func (d *device) checkRecords() {
	list, err := d.ListImages(d.t.Context())
	require.NoError(d.t, err)
	files, err := os.ReadDir(filepath.Join(d.root, "image_manager", "pulled"))
	if !errors.Is(err, fs.ErrNotExist) { // before the first pull
		require.NoError(d.t, err)
	}
	recorded := map[string]bool{}
	for _, f := range files {
		recorded[f.Name()] = true
	}
	for _, image := range list.Images {
		name := recordOf(image.ID)
		require.True(d.t, recorded[name], "the image %v has no record", image.Tags)
		delete(recorded, name)
	}
	for name := range d.absent {
		if !recorded[name] {
			delete(d.absent, name)
		}
	}
	for name := range recorded {
		if d.absent[name].IsZero() {
			d.absent[name] = time.Now()
		}
		require.LessOrEqual(d.t, time.Since(d.absent[name]), recordKept, "the record %s has no image", name)
	}
}

// A week on a disk of 8 GB, with pods that come and go, crash loops, images of which not all have room, and logs of up
// to 4 MB/s. The usage is never above the high mark but by what was written since the last collection of images, which
// come every five minutes. In the last three hours, a pod fills the disk: it is evicted, and no other one.
func TestWeek(t *testing.T) {
	days := 7
	if testing.Short() {
		days = 2
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("KUBELETKIT_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // it is a fifth of the time
	t.Logf("KUBELETKIT_SEED=%d", seed)
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t, seed)
		d.collected = time.Now()
		d.start(false)
		defer func() { d.stop() }()
		d.add("kept", keptImage, load{until: time.Now().Add(time.Minute), runs: time.Second},
			testpod.Restart(v1.RestartPolicyNever))
		last := days*24*60 - 3*60
		highest := int64(0)
		for minute := range days * 24 * 60 {
			switch {
			case minute == last:
				d.stop()
				d.start(true)
				d.add("runaway", "registry.example/app-0:1", load{until: time.Now().Add(24 * time.Hour),
					grows: runawayRate, rate: 100}, testpod.Restart(v1.RestartPolicyAlways))
			case minute < last && d.random.IntN(8*60) == 0:
				d.stop()
				for range d.random.IntN(int(downtime/time.Minute) + 1) {
					d.pass()
				}
				d.start(false)
			}
			d.change(minute)
			d.pass()
			d.check()
			highest = max(highest, d.used())
			if minute%10 == 9 {
				d.checkRecords()
			}
		}
		t.Logf("%d containers, %d rotations, %d images removed, at most %d %% used", d.starts.Load(),
			d.rotations.Load(), d.removals.Load(), highest*100/diskSize)
		for what, n := range map[string]int64{"containers": d.starts.Load(), "rotations": d.rotations.Load(),
			"images": d.removals.Load()} {
			assert.Greater(t, n, int64(10*days), what)
		}
		assert.EqualValues(t, 1, d.evicted.Load())
		assert.Empty(t, d.Running(fake.Target{Pod: "runaway"}))
	})
}
