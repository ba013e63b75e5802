package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	statusfake "github.com/kubeletkit/kubeletkit/status/fake"
)

// seen returns the phases that the sink received of a pod and "gone", without
// repetitions, and without Pending, which it need not see of a pod that starts soon.
func seen(sink *statusfake.Sink, uid types.UID) (out []string) {
	for _, d := range sink.Calls(uid) {
		what := string(d.Status.Phase)
		if d.Gone {
			what = "gone"
		}
		if what != string(v1.PodPending) && (len(out) == 0 || out[len(out)-1] != what) {
			out = append(out, what)
		}
	}
	return out
}

// A status that equals the last one is not delivered, also at the end of a pod.
func TestNoStatusIsDeliveredTwice(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		sink := statusfake.NewSink()
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{Pod: "slow"}, fake.Behavior{StopDelay: 5 * time.Second})
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.StatusSink = sink })
		static := makePod("static")
		static.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
		pods := []*v1.Pod{static, makePod("plain"), makePod("slow")}
		n.source.Set(pods...)
		n.after(10 * time.Second)
		n.source.Set()
		n.after(time.Minute)
		for _, pod := range pods {
			list := sink.Deliveries(pod.UID)
			for i := 1; i < len(list); i++ {
				assert.NotEqual(t, list[i-1].Status, list[i].Status, "%s: delivery %d", pod.Name, i)
			}
			assert.Contains(t, sink.Finished(), pod.UID)
			assert.True(t, sink.Gone(pod.UID))
		}
		n.stop(t)
	})
}

// The sink receives the whole life of each pod: a final phase, also of a pod that was
// refused or is static, and then its end, also of a pod that was removed while no agent
// ran.
func TestSinkReceivesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, source, rt := statusfake.NewSink(), podconfigfake.NewSource("file"), fake.New(fake.Options{})
		start := func(root string) (stop func()) {
			agent, err := kubeletkit.New(kubeletkit.Options{
				NodeName: "node", RootDir: root, Runtime: rt,
				Sources: []podconfig.Source{source}, StatusSink: sink,
				Host: &runtime.Host{Hostname: "host", IPs: []string{"192.0.2.1"}},
			})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- agent.Run(ctx) }()
			return func() {
				cancel()
				require.NoError(t, <-done)
			}
		}
		wait := func() {
			time.Sleep(2 * time.Minute)
			synctest.Wait()
		}
		web := testpod.New("web", testpod.Static, testpod.Containers("main"), testpod.Restart(v1.RestartPolicyAlways))
		edited := testpod.With(web, testpod.UID("uid-edited"))
		orphan := testpod.With(web, testpod.UID("uid-orphan"), func(pod *v1.Pod) { pod.Name = "orphan" })
		refused := testpod.New("refused", testpod.Containers("main"),
			func(pod *v1.Pod) { pod.Spec.OS = &v1.PodOS{Name: v1.Windows} })

		root := t.TempDir()
		source.Set(web, orphan, refused)
		stop := start(root)
		wait()
		assert.Equal(t, []string{"Running"}, seen(sink, web.UID))
		assert.Equal(t, []string{"Failed"}, seen(sink, refused.UID),
			"also if it is refused before the agent knows what runs")

		source.Set(edited, orphan)
		wait()
		assert.Equal(t, []string{"Running", "Failed", "gone"}, seen(sink, web.UID))
		assert.Equal(t, []string{"Failed", "gone"}, seen(sink, refused.UID))
		assert.Equal(t, []string{"Running"}, seen(sink, edited.UID))
		stop()

		source.Set(edited)
		stop = start(root)
		wait()
		assert.Equal(t, []string{"Running", "gone"}, seen(sink, orphan.UID))
		assert.Equal(t, []string{"Running"}, seen(sink, edited.UID))
		stop()
	})
}
