package podsource_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

const node = "node"

func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "main", Image: "image"}}},
	}
}

func mirror(name string) *v1.Pod {
	pod := newPod(name)
	pod.Annotations = map[string]string{podspec.AnnotationConfigMirror: "hash"}
	return pod
}

// rig is a running source. Its log has what the observer and the sink received.
type rig struct {
	podconfig.SinkBase
	*testing.T
	api  *apitest.Server
	src  *podsource.Source
	stop func()

	mu  sync.Mutex
	log []string
}

func (r *rig) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

// received returns the log and empties it, when everything is quiet.
func (r *rig) received() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.log
	r.log = nil
	return out
}

func names(pods []*v1.Pod) string {
	var out []string
	for _, pod := range pods {
		out = append(out, fmt.Sprintf("%s(%s)", pod.Name, pod.UID))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func (r *rig) observe(c podsource.Change) {
	for _, pod := range c.Changed {
		held, ok := r.src.ByUID(pod.UID)
		require.True(r, ok && held == pod, "the lookups have the change first")
		held, ok = r.src.ByName(pod.Namespace, pod.Name)
		require.True(r, ok && held == pod)
	}
	r.add("observer +%s -%s %v", names(c.Changed), names(c.Removed), c.Complete)
}

func (r *rig) Set(pods []*v1.Pod) { r.add("set %s", names(pods)) }
func (r *rig) Apply(d podconfig.Delta) {
	r.add("apply +%s -%v", names(d.Update), d.Remove)
}

// run runs a source in virtual time.
func run(t *testing.T, api *apitest.Server, opts podsource.Options, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, api: api}
		opts.Observers = append(opts.Observers, r.observe)
		src, err := podsource.New(api.Client(), node, opts)
		require.NoError(t, err)
		r.src = src
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- src.Run(ctx, r) }()
		r.stop = sync.OnceFunc(func() {
			cancel()
			begun := time.Now()
			assert.NoError(t, <-done)
			assert.Less(t, time.Since(begun), time.Second, "Run returns soon")
		})
		defer r.stop()
		test(r)
	})
}
