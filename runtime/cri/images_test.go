package cri_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// imageNamed returns the image with the tag, or fails.
func imageNamed(t *testing.T, list runtime.ImageList, tag string) runtime.Image {
	t.Helper()
	i := slices.IndexFunc(list.Images, func(i runtime.Image) bool { return slices.Contains(i.Tags, tag) })
	require.GreaterOrEqual(t, i, 0, "image %s in %+v", tag, list.Images)
	return list.Images[i]
}

func TestListImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "spare:1")
		svc.AddImage(fake.Image{Name: "pause:1", Pinned: true, Size: 7})
		client := svc.client(cri.Options{})
		pod := podOf("a")
		pod.Spec.Containers[0].Image = "app:1"
		s := newSyncer(t, client, pod)
		_, err := s.sync()
		require.NoError(t, err)
		started := time.Now()

		list, err := client.ListImages(t.Context())
		require.NoError(t, err)
		require.Len(t, list.Images, 3)
		pause := imageNamed(t, list, "pause:1")
		assert.True(t, pause.Pinned)
		assert.EqualValues(t, 7, pause.Size)
		assert.Empty(t, imageNamed(t, list, "spare:1").UsedBy)
		assert.Zero(t, imageNamed(t, list, "spare:1").LastUsed)
		app := imageNamed(t, list, "app:1")
		assert.Equal(t, "app:1", app.Name())
		assert.Equal(t, []runtime.ImageUse{{Pod: runtime.RefOf(pod), Container: "a", State: runtime.ContainerRunning}},
			app.UsedBy)
		assert.Equal(t, started, app.LastUsed)

		// A dead container still uses its image, until it is removed.
		time.Sleep(time.Hour)
		svc.exit("a", 1)
		ended := time.Now()
		time.Sleep(time.Hour)
		list, err = client.ListImages(t.Context())
		require.NoError(t, err)
		assert.Equal(t, runtime.ContainerExited, imageNamed(t, list, "app:1").UsedBy[0].State)
		require.NoError(t, client.RemoveContainer(t.Context(), svc.newest("a").ID))
		list, err = client.ListImages(t.Context())
		require.NoError(t, err)
		app = imageNamed(t, list, "app:1")
		assert.Empty(t, app.UsedBy)
		assert.Equal(t, ended, app.LastUsed, "when the container ended, not when it was removed")
	})
}

// Containerd before 1.7 does not pin the image of sandboxes, but tells its name.
func TestTheImageOfSandboxesIsPinned(t *testing.T) {
	svc := newService(t, "pause:1", "app:1")
	rs, is := svc.Clients()
	client := cri.New(verboseStatus{rs, `{"sandboxImage":"pause:1"}`}, is, cri.Options{})
	list, err := client.ListImages(t.Context())
	require.NoError(t, err)
	assert.True(t, imageNamed(t, list, "pause:1").Pinned)
	assert.False(t, imageNamed(t, list, "app:1").Pinned)

	client = cri.New(verboseStatus{rs, "no JSON"}, is, cri.Options{})
	_, err = client.ListImages(t.Context())
	require.NoError(t, err, "the content is up to the runtime")
}

// verboseStatus has the details of a runtime in the response to Status.
type verboseStatus struct {
	criv1.RuntimeServiceClient
	config string
}

func (c verboseStatus) Status(ctx context.Context, req *criv1.StatusRequest,
	opts ...grpc.CallOption) (*criv1.StatusResponse, error) {
	resp, err := c.RuntimeServiceClient.Status(ctx, req, opts...)
	if req.GetVerbose() && err == nil {
		resp.Info = map[string]string{"config": c.config}
	}
	return resp, err
}

func TestAnIncompleteListOfImagesIsAnError(t *testing.T) {
	for _, name := range []string{"ListImages", "ListContainers", "Status"} {
		svc := newService(t, "app:1")
		svc.Inject(fake.Fault{Call: name, Err: errors.New("disk I/O error")})
		_, err := svc.client(cri.Options{}).ListImages(t.Context())
		assert.ErrorContains(t, err, "disk I/O error", name)
	}
}

func TestRemoveImage(t *testing.T) {
	svc := newService(t, "app:1", "spare:1")
	client := svc.client(cri.Options{})
	pod := podOf("a")
	pod.Spec.Containers[0].Image = "app:1"
	before, err := client.ListImages(t.Context())
	require.NoError(t, err)
	app := imageNamed(t, before, "app:1")
	assert.Empty(t, app.UsedBy)

	_, err = newSyncer(t, client, pod).sync()
	require.NoError(t, err)
	err = client.RemoveImage(t.Context(), app.ID, before.Mark)
	require.ErrorIs(t, err, runtime.ErrImageInUse, "the list is older than the container")
	require.NoError(t, client.RemoveImage(t.Context(), imageNamed(t, before, "spare:1").ID, before.Mark))
	require.NoError(t, client.RemoveImage(t.Context(), "sha256:nothing", before.Mark))

	after, err := client.ListImages(t.Context())
	require.NoError(t, err)
	require.Len(t, after.Images, 1)
	require.NoError(t, client.RemoveImage(t.Context(), app.ID, after.Mark), "who has seen the use may decide")
	svc.Inject(fake.Fault{Call: "RemoveImage", Err: errors.New("read-only file system")})
	assert.ErrorContains(t, client.RemoveImage(t.Context(), app.ID, after.Mark), "read-only file system")
}

// The history says why an image is pulled: also that it was there and was removed.
func TestImagesThatWereRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		client := svc.client(cri.Options{})
		pull := func(name string, policy v1.PullPolicy) (removed time.Time) {
			pod := podOf(name)
			pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = "docker.io/library/app:1", policy
			s := newSyncer(t, client, pod)
			s.more = func(req *runtime.PodSync) {
				req.EnsureImage = func(ctx context.Context, r runtime.ImageRequest) (*runtime.Image, error) {
					removed = r.Store.Removed("docker.io/library/app:1")
					return runtime.EnsureImage(ctx, r)
				}
			}
			s.mustSync()
			return removed
		}
		assert.Zero(t, pull("a", v1.PullIfNotPresent))
		list, err := client.ListImages(t.Context())
		require.NoError(t, err)
		require.NoError(t, client.RemoveImage(t.Context(), list.Images[0].ID, list.Mark))
		at := time.Now()
		time.Sleep(time.Hour)
		assert.Equal(t, at, pull("b", v1.PullIfNotPresent))
		assert.Zero(t, pull("c", v1.PullAlways), "it was pulled again")
		other := svc.client(cri.Options{}) // such as crictl
		list, err = other.ListImages(t.Context())
		require.NoError(t, err)
		require.NoError(t, other.RemoveImage(t.Context(), list.Images[0].ID, list.Mark))
		assert.Zero(t, pull("d", v1.PullIfNotPresent))
	})
}

// An image cannot be removed from the moment when a start has found it.
func TestAnImageOfAStartIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		client := svc.client(cri.Options{})
		pod := podOf("a")
		pod.Spec.Containers[0].Image = "app:1"
		remove := svc.Inject(fake.Fault{Call: "RunPodSandbox", Delay: time.Minute})
		done := make(chan error, 1)
		go func() { _, err := newSyncer(t, client, pod).sync(); done <- err }()
		synctest.Wait() // the sandbox is being made, the image was found
		list, err := client.ListImages(t.Context())
		require.NoError(t, err)
		app := imageNamed(t, list, "app:1")
		assert.Equal(t, []runtime.ImageUse{{Pod: runtime.RefOf(pod)}}, app.UsedBy)
		require.ErrorIs(t, client.RemoveImage(t.Context(), app.ID, list.Mark), runtime.ErrImageInUse)
		remove()
		require.NoError(t, <-done)
	})
}

// A start that finds its image while it is being removed pulls it again. Others do not
// wait for that.
func TestAnImageIsRemovedDuringItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1", "other:1")
		client := svc.client(cri.Options{})
		list, err := client.ListImages(t.Context())
		require.NoError(t, err)
		svc.Inject(fake.Fault{Call: "RemoveImage", Delay: time.Minute})
		removed := make(chan error, 1)
		go func() { removed <- client.RemoveImage(t.Context(), imageNamed(t, list, "app:1").ID, list.Mark) }()
		synctest.Wait()

		began := time.Now()
		pod := podOf("a")
		pod.Name, pod.UID, pod.Spec.Containers[0].Image = "other", "other", "other:1"
		_, err = newSyncer(t, client, pod).sync()
		require.NoError(t, err)
		assert.Zero(t, time.Since(began), "a start of another image does not wait")

		pod = podOf("a")
		pod.Spec.Containers[0].Image = "app:1"
		s := newSyncer(t, client, pod)
		svc.calls()
		_, err = s.sync()
		require.NoError(t, err)
		require.NoError(t, <-removed)
		assert.Equal(t, time.Minute, time.Since(began))
		assert.Contains(t, svc.calls(), "1m0s PullImage app:1")
		list, err = client.ListImages(t.Context())
		require.NoError(t, err)
		assert.Len(t, imageNamed(t, list, "app:1").UsedBy, 1)

		// A start that is given up does not wait for the removal.
		go func() { removed <- client.RemoveImage(t.Context(), imageNamed(t, list, "other:1").ID, list.Mark) }()
		synctest.Wait()
		pod = podOf("a")
		pod.Name, pod.UID, pod.Spec.Containers[0].Image = "late", "late", "other:1"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		host := svc.Host()
		host.PodLogsDir = t.TempDir()
		_, err = client.SyncPod(ctx, runtime.PodSync{Pod: pod, Host: host, Dir: t.TempDir()})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, <-removed)
	})
}

// Pods start and end while a collector removes whatever is not used. No start misses its
// image, and no container loses it.
func TestImageStress(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { stressImages(t, dir) })
}

func stressImages(t *testing.T, dir string) {
	const workers, starts, kinds = 4, 100, 12
	rt := fake.New(fake.Options{Dir: dir, Calls: -1})
	rt.AddImage(fake.Image{Name: "pinned:1", Pinned: true})
	_, images := rt.Clients()
	exists := func(name string) bool {
		resp, err := images.ImageStatus(t.Context(), &criv1.ImageStatusRequest{Image: &criv1.ImageSpec{Image: name}})
		return err == nil && resp.GetImage() != nil
	}
	rt.Inject(fake.Fault{Call: "RemoveImage", Delay: 100 * time.Microsecond})
	rt.Inject(fake.Fault{Call: "PullImage", Delay: 50 * time.Microsecond, Late: true})
	rt.Inject(fake.Fault{Call: "CreateContainer", Delay: 50 * time.Microsecond})

	ctx, stop := context.WithCancel(t.Context())
	var collector, pods sync.WaitGroup
	removed, refused := 0, 0
	collector.Go(func() {
		for ctx.Err() == nil {
			list, err := rt.ListImages(t.Context())
			if !assert.NoError(t, err) {
				return
			}
			time.Sleep(time.Millisecond) // as a plan would take: pods start and end meanwhile
			for _, image := range list.Images {
				if image.Pinned || len(image.UsedBy) > 0 {
					continue
				}
				switch err := rt.RemoveImage(t.Context(), image.ID, list.Mark); {
				case errors.Is(err, runtime.ErrImageInUse):
					refused++
				case assert.NoError(t, err):
					removed++
				}
			}
		}
	})
	for w := range workers {
		pods.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for n := range starts {
				pod := fake.Pods(1, 2)[0]
				pod.Name = fmt.Sprintf("pod-%d-%d", w, n)
				pod.UID = types.UID(pod.Name)
				for i := range pod.Spec.Containers {
					c := &pod.Spec.Containers[i]
					c.Image = fmt.Sprintf("app:%d", random.IntN(kinds))
					c.ImagePullPolicy = []v1.PullPolicy{v1.PullIfNotPresent, v1.PullAlways}[random.IntN(2)]
				}
				_, err := rt.Sync(t.Context(), pod)
				if !assert.NoError(t, err) {
					return
				}
				time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
				for i := range pod.Spec.Containers {
					assert.True(t, exists(pod.Spec.Containers[i].Image), "the image of a running container was removed")
				}
				status, err := rt.InspectPod(t.Context(), runtime.RefOf(pod))
				assert.NoError(t, err)
				zero := int64(0)
				assert.NoError(t,
					rt.KillPod(t.Context(), runtime.PodKill{Pod: pod, Status: status, GracePeriod: &zero}))
				for _, s := range status.Sandboxes {
					assert.NoError(t, rt.RemoveSandbox(t.Context(), s.ID))
				}
			}
		})
	}
	pods.Wait()
	stop()
	collector.Wait()
	assert.True(t, exists("pinned:1"))
	assert.Positive(t, removed)
	assert.Positive(t, refused)
	t.Logf("%d starts, %d removals, %d refused", workers*starts*2, removed, refused)
}
