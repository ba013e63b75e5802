package fake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestFaults(t *testing.T) {
	gone := errors.New("something unheard of")
	for name, tc := range map[string]struct {
		fault fake.Fault
		// of the first SyncPod
		err   error
		says  string
		takes time.Duration
		runs  int
		// made counts the containers that exist after it.
		made int
	}{
		"none":          {fault: fake.Fault{Call: "StopContainer", Err: gone}, runs: 2, made: 2},
		"an error":      {fault: fake.Fault{Call: "RunPodSandbox", Err: gone}, says: "something unheard of"},
		"a known error": {fault: fake.Fault{Call: "CreateContainer", Target: fake.Target{Container: "a"}, Err: runtime.ErrUnavailable}, err: runtime.ErrUnavailable, runs: 1, made: 1},
		"by image":      {fault: fake.Fault{Call: "PullImage", Target: fake.Target{Image: "image:1"}, Err: gone}, says: "ErrImagePull"},
		"by pod":        {fault: fake.Fault{Call: "StartContainer", Target: fake.Target{Pod: "other"}, Err: gone}, runs: 2, made: 2},
		"the second":    {fault: fake.Fault{Call: "StartContainer", Skip: 1, Times: 1, Err: gone}, says: "container b", runs: 1, made: 2},
		"slow":          {fault: fake.Fault{Call: "StartContainer", Delay: 3 * time.Second}, takes: 6 * time.Second, runs: 2, made: 2},
		"slow, then an error": {fault: fake.Fault{Call: "RunPodSandbox", Delay: 3 * time.Second, Err: runtime.ErrNotFound},
			takes: 3 * time.Second, err: runtime.ErrNotFound},
		// A call that starts something gets 3 s more than the minute.
		"hangs": {fault: fake.Fault{Call: "RunPodSandbox", Hang: true}, takes: time.Minute + 3*time.Second, err: context.DeadlineExceeded},
		"a lost answer": {fault: fake.Fault{Call: "StartContainer", Target: fake.Target{Container: "a"}, Late: true, Err: runtime.ErrUnavailable},
			err: runtime.ErrUnavailable, runs: 2, made: 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, rt *fake.Runtime) {
				remove := rt.Inject(tc.fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				_, err := rt.Sync(ctx, makePod("web", "a", "b"))
				assert.Equal(t, tc.takes, time.Since(began))
				switch {
				case tc.err != nil:
					require.ErrorIs(t, err, tc.err)
				case tc.says != "":
					require.ErrorContains(t, err, tc.says)
				default:
					require.NoError(t, err)
				}
				assert.Len(t, rt.Running(fake.Target{}), tc.runs)
				assert.Len(t, rt.Instances(fake.Target{}), tc.made)

				remove()
				remove()
				time.Sleep(time.Minute)
				for range 3 {
					_, _ = rt.Sync(t.Context(), makePod("web", "a", "b"))
					time.Sleep(2 * time.Second)
				}
				assert.Len(t, rt.Running(fake.Target{}), 2, "all is well again")
			})
		})
	}
}

func TestRemovingAFaultFreesWhatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		remove := rt.Inject(fake.Fault{Call: "StartContainer", Hang: true})
		go func() {
			call, err := rt.UntilCalled(t.Context(), "StartContainer", fake.Target{Pod: "web"})
			assert.NoError(t, err)
			assert.True(t, call.Ended.IsZero())
			time.Sleep(time.Hour)
			remove()
		}()
		began := time.Now()
		_, err := rt.SyncPod(t.Context(), runtime.PodSync{Pod: makePod("web", "main"), Host: rt.Host(),
			Dir: t.TempDir()})
		require.ErrorIs(t, err, context.DeadlineExceeded, "the client's own timeout is two minutes")
		assert.Equal(t, 2*time.Minute, time.Since(began))
		time.Sleep(2 * time.Hour)
	})
}

func TestRestart(t *testing.T) {
	for name, tc := range map[string]struct {
		memory fake.Memory
		want   []string
		ready  int
	}{
		"keep":   {fake.Keep, []string{"default/web/ends#0 exited (3)", "default/web/main#0 running"}, 1},
		"reboot": {fake.Reboot, []string{"default/web/ends#0 exited (3)", "default/web/main#0 exited (255)"}, 0},
		"forget": {fake.Forget, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, rt *fake.Runtime) {
				rt.Script(fake.Target{Container: "ends"}, fake.Exits(time.Minute, 3))
				pod := makePod("web", "ends", "main")
				mustSync(t, rt, pod)
				rt.Stop()
				require.ErrorIs(t, rt.Check(t.Context()), runtime.ErrUnavailable)
				_, err := rt.ListPods(t.Context())
				require.ErrorIs(t, err, runtime.ErrUnavailable)
				time.Sleep(time.Hour)
				rt.Start(tc.memory)
				rt.Start(fake.Forget) // it has started already
				require.NoError(t, rt.Check(t.Context()))
				assert.Equal(t, tc.want, texts(rt.Instances(fake.Target{})))
				assert.Equal(t, tc.ready, rt.ReadySandboxes(fake.Target{}))
				images, err := imagesOf(rt).ListImages(t.Context(), &criv1.ListImagesRequest{})
				require.NoError(t, err)
				assert.Len(t, images.Images, 1, "images are never forgotten")

				mustSync(t, rt, pod)
				time.Sleep(2 * time.Second)
				mustSync(t, rt, pod)
				assert.Len(t, rt.Running(fake.Target{}), 2)
			})
		})
	}
}

func imagesOf(rt *fake.Runtime) criv1.ImageServiceClient {
	_, images := rt.Clients()
	return images
}

func TestStopEndsCallsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		rt.Script(fake.Target{}, fake.Behavior{StartDelay: time.Hour})
		go func() { time.Sleep(time.Minute); rt.Restart(fake.Keep) }()
		began := time.Now()
		_, err := rt.Sync(t.Context(), makePod("web", "main"))
		require.ErrorIs(t, err, runtime.ErrUnavailable)
		assert.Equal(t, time.Minute, time.Since(began))
	})
}
