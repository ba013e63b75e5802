package gc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/gc/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// spare returns an image that nothing uses.
func spare(id string, size int64) fake.Image {
	return fake.Image{Image: runtime.Image{ID: id, Tags: []string{id + ":1"}, Size: size}}
}

// running is a use by a container that runs.
func running1(uid string) runtime.ImageUse {
	return runtime.ImageUse{Pod: ref(uid), Container: "main", State: runtime.ContainerRunning}
}

// imageGC is a collector over a fake service, with what it reports.
type imageGC struct {
	*gc.ImageGC
	service *fake.Images

	mu      sync.Mutex
	emitted []string
	log     []string
	done    []gc.ImageCollection
}

// events returns the events so far.
func (g *imageGC) events() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.emitted)
}

func (g *imageGC) measure(m runtime.Measurement) { g.done = append(g.done, m.(gc.ImageCollection)) }

func newImageGC(t *testing.T, service *fake.Images, opts gc.ImageOptions) *imageGC {
	t.Helper()
	g := &imageGC{service: service}
	opts.Measure, opts.NonBlocking = g.measure, true
	opts.Event = func(e runtime.Event) {
		g.mu.Lock()
		defer g.mu.Unlock()
		assert.Zero(t, e.Pod, "it is about the node")
		g.emitted = append(g.emitted, e.Type+" "+e.Reason+": "+e.Message)
	}
	opts.Logger = funcr.New(func(_, args string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.log = append(g.log, args)
	}, funcr.Options{})
	var err error
	g.ImageGC, err = gc.NewImageGC(service, opts)
	require.NoError(t, err)
	return g
}

// known makes the collector know the images for longer than MinAge. It runs in a bubble.
func (g *imageGC) known(t *testing.T) {
	t.Helper()
	_, err := g.Preview(t.Context(), gc.ImagesToThresholds)
	require.NoError(t, err)
	time.Sleep(3 * time.Minute)
}

func (g *imageGC) logged(text string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, line := range g.log {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// The collection begins at the high threshold and ends at the low one, whatever the sizes
// of images say: the file system decides.
func TestImagesUntilTheLowThreshold(t *testing.T) {
	for name, tc := range map[string]struct {
		size, bytes int64
		left        int
	}{
		"sizes as on disk":          {100, 100, 8},
		"sizes are compressed":      {50, 100, 8},
		"images share their layers": {300, 100, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := fake.NewImages(1000)
				for n := range 9 {
					image := spare(fmt.Sprint("i", n), tc.size)
					image.Bytes = tc.bytes
					service.Add(image)
				}
				service.SetOthers(0)
				g := newImageGC(t, service, gc.ImageOptions{})
				g.known(t)
				require.NoError(t, g.GarbageCollect(t.Context()))
				assert.Len(t, service.IDs(), tc.left)
				synctest.Wait()
				require.Len(t, g.done, 1)
				assert.Equal(t, 9-tc.left, g.done[0].ForSpace)
				assert.EqualValues(t, 100*(9-tc.left), g.done[0].Freed)
				assert.Empty(t, g.events())

				service.SetOthers(40) // 84 %, which is below the high threshold
				require.NoError(t, g.GarbageCollect(t.Context()))
				assert.Len(t, service.IDs(), tc.left)
			})
		})
	}
}

// The space of a removed image can come a while later.
func TestImagesWithALateFileSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := spare("a", 300)
		late.Bytes = -1
		service := fake.NewImages(1000, late, spare("b", 100))
		service.SetOthers(800)
		g := newImageGC(t, service, gc.ImageOptions{})
		g.known(t)
		go func() {
			_, err := service.UntilCalled(context.Background(), fake.RemoveImage, "")
			if assert.NoError(t, err) {
				time.Sleep(time.Second)
				service.SetOthers(500)
			}
		}()
		require.NoError(t, g.GarbageCollect(t.Context()))
		assert.Equal(t, []string{"b"}, service.IDs())
	})
}

// What is too old goes first, and the space is judged when it is gone.
func TestImagesThatAreTooOld(t *testing.T) {
	for name, tc := range map[string]struct {
		others int64
		left   []string
	}{
		"and that is enough":     {400, []string{"a", "b", "c"}},
		"and that is not enough": {560, []string{"b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := fake.NewImages(1000, spare("old", 100))
				service.SetOthers(tc.others)
				g := newImageGC(t, service, gc.ImageOptions{ImagePolicy: gc.ImagePolicy{MaxAge: time.Hour}})
				g.known(t)
				time.Sleep(time.Hour)
				service.Add(spare("a", 100), spare("b", 100), spare("c", 100))
				g.known(t)
				require.NoError(t, g.GarbageCollect(t.Context()))
				assert.Equal(t, tc.left, service.IDs())
				synctest.Wait()
				assert.Equal(t, 1, g.done[0].ForAge)
			})
		})
	}
}

// Other data fills the disk: everything that may go goes, and the node has an event.
func TestImagesWithoutEnoughSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used, pin := spare("used", 50), spare("pinned", 50)
		used.UsedBy, pin.Pinned = []runtime.ImageUse{running1("1")}, true
		service := fake.NewImages(10<<30, spare("a", 10<<20), used, pin)
		service.SetOthers(10<<30 - 20<<20)
		g := newImageGC(t, service, gc.ImageOptions{})
		g.known(t)
		want := "Insufficient free disk space on the node's image filesystem (100% of 10.0 GiB used). " +
			"Failed to free sufficient space by deleting unused images (freed 10485760 bytes). " +
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
		require.EqualError(t, g.GarbageCollect(t.Context()), want)
		assert.Equal(t, []string{"Warning FreeDiskSpaceFailed: " + want}, g.events())
		assert.Equal(t, []string{"pinned", "used"}, service.IDs())
	})
}

// As in kubelet, the first failure is logged, and from the second one in a row on there
// is an event.
func TestImageGCFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := fake.NewImages(1000, spare("a", 1))
		broken := errors.New("no answer")
		service.Fail(fake.ListImages, "", 3, broken)
		g := newImageGC(t, service, gc.ImageOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- g.Run(ctx) }()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		assert.Equal(t, 1, g.logged("has failed once"))
		assert.Empty(t, g.events())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"Warning ImageGCFailed: listing images: no answer"}, g.events())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.Len(t, g.events(), 2)
		time.Sleep(5 * time.Minute) // this one succeeds
		service.Fail(fake.ListImages, "", 1, broken)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.Len(t, g.events(), 2, "once again")
		assert.Equal(t, 2, g.logged("has failed once"))
		require.ErrorIs(t, g.Run(ctx), runtime.ErrAlreadyRunning)
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestImagesOfARuntimeWithoutImages(t *testing.T) {
	for name, opts := range map[string]gc.ImageOptions{"unsupported": {},
		"disabled": {ImagePolicy: gc.ImagePolicy{HighThresholdPercent: 100}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := fake.NewImages(1000)
				service.Fail(fake.ListImages, "", -1, fmt.Errorf("ListImages: %w", errors.ErrUnsupported))
				g := newImageGC(t, service, opts)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				require.NoError(t, g.Run(ctx))
				if name == "unsupported" {
					assert.Len(t, service.Calls(""), 1)
					assert.Equal(t, 1, g.logged("has no images that could be removed"))
				} else {
					assert.Empty(t, service.Calls(""))
				}
				assert.Empty(t, g.events())
			})
		})
	}
}

// Others receive the images at the start of a Run, and a first failure is no failed collection.
func TestImagesAreListedAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := fake.NewImages(1000, spare("a", 1))
		lists := 0
		opts := gc.ImageOptions{ImagePolicy: gc.ImagePolicy{HighThresholdPercent: 100},
			Listed: func(list runtime.ImageList) {
				assert.Len(t, list.Images, 1)
				lists++
			}}
		for want, failed := range []int{1, 0} {
			service.Fail(fake.ListImages, "", failed, errors.New("not ready"))
			g := newImageGC(t, service, opts)
			ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
			require.NoError(t, g.Run(ctx))
			cancel()
			assert.Equal(t, want, lists)
			assert.Zero(t, g.logged("failed"))
			assert.Empty(t, g.events())
		}
	})
}

func TestImagesThatCannotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := fake.NewImages(1000)
		for n := range 9 {
			service.Add(spare(fmt.Sprint("i", n), 100))
		}
		g := newImageGC(t, service, gc.ImageOptions{})
		g.known(t)
		service.Fail(fake.RemoveImage, "", 5, errors.New("read-only file system"))
		err := g.GarbageCollect(t.Context())
		require.EqualError(t, err,
			"wanted to free 100 bytes, but freed 100 bytes space with errors in image deletion: "+
				"removing image i0:1 (i0): read-only file system\nremoving image i1:1 (i1): read-only file "+
				"system\nremoving image i2:1 (i2): read-only file system\nand 2 more")
		synctest.Wait()
		assert.Equal(t, 5, g.done[0].Failed)
		assert.Len(t, service.IDs(), 8, "others go in their place")
		assert.Empty(t, g.events())
	})
}

func TestImageFsProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := fake.NewImages(0, spare("a", 1))
		g := newImageGC(t, service, gc.ImageOptions{ImagePolicy: gc.ImagePolicy{MaxAge: time.Hour}})
		require.ErrorContains(t, g.GarbageCollect(t.Context()), "invalid capacity 0 on image filesystem")
		assert.Equal(t, []string{"Warning InvalidDiskCapacity: invalid capacity 0 on image filesystem"}, g.events())
		service.SetCapacity(1000)
		service.Fail(fake.ImageFsInfo, "", -1, errors.New("no such directory"))
		time.Sleep(2 * time.Hour)
		require.ErrorContains(t, g.GarbageCollect(t.Context()), "no such directory")
		assert.Empty(t, service.IDs(), "what is too old goes all the same, as in kubelet")
		synctest.Wait()
		assert.Equal(t, 1, g.done[1].ForAge)
		require.NoError(t, g.DeleteUnusedImages(t.Context()), "the space does not matter")
	})
}

// An image that comes into use after the list is refused by the runtime, and that is no
// error.
func TestAnImageComesIntoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := fake.NewImages(1000, spare("a", 100), spare("b", 100))
		service.SetOthers(700)
		g := newImageGC(t, service, gc.ImageOptions{})
		g.known(t)
		release := service.Hold(fake.RemoveImage, "")
		ended := make(chan error, 1)
		go func() { ended <- g.GarbageCollect(t.Context()) }()
		synctest.Wait()
		service.Use("a", running1("1"))
		release()
		require.NoError(t, <-ended)
		assert.Equal(t, []string{"a"}, service.IDs())
	})
}

// An image that the runtime has used was there before the collector has listed it.
func TestAnImageThatWasUsedIsNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := spare("used", 10)
		used.LastUsed = time.Now()
		service := fake.NewImages(1000, used, spare("new", 10))
		g := newImageGC(t, service, gc.ImageOptions{})
		time.Sleep(2 * time.Minute)
		require.NoError(t, g.DeleteUnusedImages(t.Context()))
		assert.Equal(t, []string{"new"}, service.IDs())
	})
}

func TestDeleteUnusedImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used, pin := spare("used", 50), spare("pinned", 50)
		used.UsedBy, pin.Pinned = []runtime.ImageUse{running1("1")}, true
		service := fake.NewImages(math.MaxInt32, spare("a", 10), spare("b", 10), used, pin)
		g := newImageGC(t, service, gc.ImageOptions{ImagePolicy: gc.ImagePolicy{HighThresholdPercent: 100}})
		g.known(t)
		service.Add(spare("young", 10))
		p, err := g.Preview(t.Context(), gc.AllUnusedImages)
		require.NoError(t, err)
		assert.Len(t, p.Plan.Remove, 2)
		assert.Len(t, p.Input.Images, 5)
		require.NoError(t, g.DeleteUnusedImages(t.Context()))
		assert.Equal(t, []string{"pinned", "used", "young"}, service.IDs())
		synctest.Wait()
		assert.EqualValues(t, 20, g.done[0].Freed)
	})
}

// A plan of somebody else cannot have an image removed that is in use, and its panics and
// repetitions end.
func TestImagePlansOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // what is there is read again after a pause
		used, pin := spare("used", 50), spare("pinned", 50)
		used.UsedBy, pin.Pinned = []runtime.ImageUse{running1("1")}, true
		service := fake.NewImages(1000, used, pin, spare("a", 1))
		g := newImageGC(t, service, gc.ImageOptions{Plan: func(in gc.ImageInput) gc.ImagePlan {
			p := gc.ImagePlan{Free: 1 << 40}
			for _, id := range []string{"used", "pinned", "a", "a", "nothing"} {
				p.Remove = append(p.Remove, gc.ImageRemoval{Image: gc.Image{Image: runtime.Image{ID: id}},
					Reason: gc.ImageForSpace})
			}
			return p
		}})
		err := g.GarbageCollect(t.Context())
		require.ErrorContains(t, err, "image used:1 is used by running container main")
		require.ErrorContains(t, err, "image pinned:1 is pinned; a plan must not remove it")
		assert.Equal(t, []string{"pinned", "used"}, service.IDs())

		g = newImageGC(t, service, gc.ImageOptions{Plan: func(gc.ImageInput) gc.ImagePlan { panic("plan") }})
		var crash *runtime.PanicError
		require.ErrorAs(t, g.GarbageCollect(t.Context()), &crash)
		require.ErrorAs(t, g.DeleteUnusedImages(t.Context()), &crash, "it works on")
	})
}

func TestImageCollectionIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := fake.NewImages(1000, spare("a", 900))
		g := newImageGC(t, service, gc.ImageOptions{})
		g.known(t)
		release := service.Hold(fake.RemoveImage, "")
		defer release()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- g.GarbageCollect(ctx) }()
		synctest.Wait()
		go func() { ended <- g.DeleteUnusedImages(ctx) }() // waits for the other one
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.Empty(t, g.events())
	})
}

// What is known of the use of images outlives the agent, and is written only when it
// changes.
func TestImageUseAcrossRestarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image_gc_state")
	synctest.Test(t, func(t *testing.T) {
		written := func() string {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			info, err := os.Stat(file)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o600), info.Mode())
			return string(data)
		}
		preview := func(g *imageGC) map[string]gc.Image {
			p, err := g.Preview(t.Context(), gc.ImagesToThresholds)
			require.NoError(t, err)
			byID := map[string]gc.Image{}
			for _, i := range p.Input.Images {
				byID[i.ID] = i
			}
			return byID
		}
		service := fake.NewImages(1000, spare("a", 1), spare("b", 1), spare("c", 1))
		service.Use("a", running1("1"))
		service.Use("b", running1("2"))
		start := time.Now()
		first := newImageGC(t, service, gc.ImageOptions{StateFile: file})
		preview(first)
		before := written()
		info, err := os.Stat(file)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.Equal(t, time.Now(), preview(first)["a"].LastUsed)
		again, err := os.Stat(file)
		require.NoError(t, err)
		assert.True(t, os.SameFile(info, again), "nothing has changed but the time")

		service.Use("a") // ends
		ended := time.Now()
		time.Sleep(time.Hour)
		got := preview(first)
		assert.Equal(t, ended, got["a"].LastUsed)
		assert.NotEqual(t, before, written())
		time.Sleep(time.Hour)
		service.Use("b") // ends while no agent runs

		second := newImageGC(t, service, gc.ImageOptions{StateFile: file})
		got = preview(second)
		for _, i := range got {
			assert.True(t, start.Equal(i.FirstSeen), i.ID)
		}
		assert.True(t, ended.Equal(got["a"].LastUsed))
		assert.True(t, time.Now().Equal(got["b"].LastUsed), "nobody knows better")
		assert.Zero(t, got["c"].LastUsed)

		// A removed image is forgotten. The file has no more than what there is.
		require.NoError(t, second.DeleteUnusedImages(t.Context()))
		assert.Equal(t, `{"version":1,"images":{}}`, written())

		// A clock that was set back leaves nothing in the future.
		service.Add(spare("d", 1))
		require.NoError(t,
			os.WriteFile(file,
				[]byte(
					`{"version":1,"images":{"d":{"firstSeen":"2999-01-01T00:00:00Z","lastUsed":"2999-01-01T00:00:00Z"}}}`), 0o600))
		got = preview(newImageGC(t, service, gc.ImageOptions{StateFile: file}))
		assert.True(t, time.Now().Equal(got["d"].LastUsed))
		assert.True(t, time.Now().Equal(got["d"].FirstSeen))
	})
}

func TestImageRecordsThatCannotBeRead(t *testing.T) {
	for name, content := range map[string]string{
		"no JSON": "{", "version": `{"version":2,"images":{"a":{}}}`, "type": `{"version":1,"images":[]}`, "null": `{"version":1,"images":{"a":null}}`, "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "image_gc_state")
			require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
			g := newImageGC(t, fake.NewImages(1000, spare("a", 1)), gc.ImageOptions{StateFile: file})
			require.NoError(t, g.GarbageCollect(t.Context()))
			if name != "null" {
				assert.Equal(t, 1, g.logged("cannot be read"))
			}
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Contains(t, string(data), `{"version":1,"images":{"a":{"firstSeen":`)
		})
	}
	// A directory that is missing or full is no error of the collection, either.
	g := newImageGC(t, fake.NewImages(1000, spare("a", 1)),
		gc.ImageOptions{StateFile: filepath.Join(t.TempDir(), "missing", "state")})
	require.NoError(t, g.GarbageCollect(t.Context()))
	assert.Positive(t, g.logged("cannot be written"))
}

func TestImageRecordsAreBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image_gc_state")
	service := fake.NewImages(1<<40, spare(strings.Repeat("x", 1000), 1))
	for n := range 12_000 {
		service.Add(spare(fmt.Sprintf("sha256:%064d", n), 1))
	}
	g := newImageGC(t, service, gc.ImageOptions{StateFile: file})
	require.NoError(t, g.GarbageCollect(t.Context()))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, 10_000, strings.Count(string(data), "firstSeen"))
	assert.Less(t, len(data), 4<<20)
	again := newImageGC(t, service, gc.ImageOptions{StateFile: file})
	require.NoError(t, again.GarbageCollect(t.Context()))
	assert.Zero(t, again.logged("cannot be read"))
}

// Images that the policy names stay, whatever the space is.
func TestKeptImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tagged := func(id string, tags, digests []string) fake.Image {
			return fake.Image{Image: runtime.Image{ID: id, Tags: tags, Digests: digests, Size: 1}}
		}
		sum := strings.Repeat("0", 64)
		service := fake.NewImages(100,
			tagged("short", []string{"docker.io/library/nginx:1.29"}, nil),
			tagged("other tag", []string{"docker.io/library/nginx:1.28"}, nil),
			tagged("latest", []string{"docker.io/library/busybox:latest"}, nil),
			tagged("prefix", []string{"r.io/other:1", "r.io/base/app:7"}, nil),
			tagged("digest", nil, []string{"r.io/app@sha256:" + sum}), tagged("none", nil, nil))
		g := newImageGC(t, service, gc.ImageOptions{ImagePolicy: gc.ImagePolicy{
			MinAge: -1, Keep: []string{"nginx:1.29", "busybox", "r.io/base/*", "r.io/app@sha256:" + sum},
		}})
		p, err := g.Preview(t.Context(), gc.AllUnusedImages)
		require.NoError(t, err)
		var kept []string
		for i := range p.Input.Images {
			if p.Input.Images[i].KeptBy(p.Input.Policy, p.Input.Now) == "kept by the policy" {
				kept = append(kept, p.Input.Images[i].ID)
			}
		}
		slices.Sort(kept)
		assert.Equal(t, []string{"digest", "latest", "prefix", "short"}, kept)
		require.NoError(t, g.DeleteUnusedImages(t.Context()))
		list, err := service.ListImages(t.Context())
		require.NoError(t, err)
		assert.Len(t, list.Images, 4)
	})
	_, err := gc.NewImageGC(fake.NewImages(100),
		gc.ImageOptions{ImagePolicy: gc.ImagePolicy{Keep: []string{"Bad", "ok", "nginx*", "*"}}})
	require.ErrorContains(t, err, `image "Bad" that is to be kept`)
	require.ErrorContains(t, err, `images "nginx*" that are to be kept: must begin with a registry`)
	require.ErrorContains(t, err, `images "*"`)
}

// An image without an ID cannot be removed. There is kubelet's event about it if nothing uses it.
func TestAnImageWithoutAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := spare("", 100)
		broken.Tags = []string{"broken:1"}
		service := fake.NewImages(1000, spare("a", 100), broken)
		g := newImageGC(t, service, gc.ImageOptions{})
		g.known(t)
		require.NoError(t, g.DeleteUnusedImages(t.Context()))
		assert.Equal(t, []string{""}, service.IDs())
		assert.Equal(t, []string{"Warning InvalidImageID: ImageID is not valid, skipping, image: broken:1"}, g.events())
	})
}
