package gc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// imageStore returns a runtime with n images of 1 GiB on a disk that is full, a tenth of
// them used by pods.
func imageStore(tb testing.TB, n int) *fake.Runtime {
	rt := fake.New(fake.Options{Dir: tb.TempDir(), Calls: -1, ImageFsBytes: int64(n) << 30})
	pods := fake.Pods(n/10, 1)
	for i := range n {
		name := fmt.Sprintf("registry.example/team/app-%d:1", i)
		rt.AddImage(fake.Image{Name: name, Size: 1 << 30})
		if i < len(pods) {
			pods[i].Spec.Containers[0].Image = name
		}
	}
	require.NoError(tb, rt.Seed(pods...))
	return rt
}

// BenchmarkImagePlan measures a plan over 2,000 images: the calls that list images and
// containers, the records, and the decision. "pure" is the decision alone.
func BenchmarkImagePlan(b *testing.B) {
	rt := imageStore(b, 2000)
	c, err := gc.NewImageGC(rt, gc.ImageOptions{ImagePolicy: gc.ImagePolicy{MinAge: -1}})
	require.NoError(b, err)
	preview, err := c.Preview(b.Context(), gc.ImagesToThresholds)
	require.NoError(b, err)
	require.Len(b, preview.Plan.Remove, 400)
	b.Run("preview", func(b *testing.B) {
		for b.Loop() {
			if _, err := c.Preview(b.Context(), gc.ImagesToThresholds); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pure", func(b *testing.B) {
		for b.Loop() {
			gc.PlanImages(preview.Input)
		}
	})
}

// BenchmarkPlan measures the plan for 10,000 dead containers of 1,000 pods, half of which are gone, with the log
// directories of all.
func BenchmarkPlan(b *testing.B) {
	const pods, containers = 1000, 10
	in := gc.Input{Policy: gc.Policy{MaxPerContainer: 1}, Now: time.Now()}
	for p := range pods {
		uid := fmt.Sprintf("u%d", p)
		pod := gc.Pod{Pod: &runtime.Pod{PodRef: ref(uid),
			Sandboxes: []runtime.Sandbox{sandbox("s-"+uid, runtime.SandboxNotReady)}}, Gone: p%2 == 0}
		for c := range containers {
			pod.Containers = append(pod.Containers, container(fmt.Sprintf("c-%s-%d", uid, c), fmt.Sprint("c", c%2),
				"s-"+uid, runtime.ContainerExited, c))
		}
		in.Pods = append(in.Pods, pod)
		in.LogDirs = append(in.LogDirs, gc.LogDir{Path: "/var/log/pods/" + uid, UID: pod.UID, Gone: pod.Gone})
	}
	for b.Loop() {
		if r := gc.Plan(in); len(r.LogDirs) != pods/2 {
			b.Fatal(len(r.LogDirs))
		}
	}
}

// BenchmarkStartDuringImageGC measures the start of a pod while images are removed one
// after the other, each in 2 ms, and without that.
func BenchmarkStartDuringImageGC(b *testing.B) {
	for _, busy := range []bool{false, true} {
		b.Run(fmt.Sprintf("collecting=%t", busy), func(b *testing.B) {
			rt := fake.New(fake.Options{Dir: b.TempDir(), Calls: -1, Images: []string{"image:1"}})
			rt.Inject(fake.Fault{Call: "RemoveImage", Delay: 2 * time.Millisecond})
			ctx, stop := context.WithCancel(b.Context())
			var run sync.WaitGroup
			if busy {
				c, err := gc.NewImageGC(rt, gc.ImageOptions{ImagePolicy: gc.ImagePolicy{MinAge: -1}})
				require.NoError(b, err)
				run.Go(func() {
					for ctx.Err() == nil {
						for n := range 50 {
							rt.AddImage(fake.Image{Name: fmt.Sprintf("spare-%d:1", n)})
						}
						_ = c.DeleteUnusedImages(ctx)
					}
				})
			}
			n := 0
			for b.Loop() {
				n++
				pod := fake.Pods(1, 1)[0]
				pod.Name = fmt.Sprintf("pod-%d", n)
				pod.UID = types.UID(pod.Name)
				if _, err := rt.Sync(ctx, pod); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				status, err := rt.InspectPod(ctx, runtime.RefOf(pod))
				require.NoError(b, err)
				require.NoError(b, rt.RemoveSandbox(ctx, status.Sandboxes[0].ID))
				b.StartTimer()
			}
			stop()
			run.Wait()
		})
	}
}
