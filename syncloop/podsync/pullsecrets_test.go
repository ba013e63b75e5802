package podsync_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

// fakeObjects has the secret ns/there.
type fakeObjects struct{}

func (fakeObjects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case name == "away":
		return nil, errors.New("connection refused")
	case namespace != "ns" || name != "there":
		return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
	}
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, nil
}

func (fakeObjects) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
}

// capture keeps what the runtime is asked for.
type capture struct {
	runtime.Runtime
	req runtime.PodSync
}

func (c *capture) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	c.req = req
	return c.Runtime.SyncPod(ctx, req)
}

// requests keeps the last request for an image.
type requests struct {
	images.Base
	req images.Request
	err error
}

func (r *requests) Ensure(_ context.Context, req images.Request) (*runtime.Image, error) {
	r.req = req
	return &runtime.Image{}, r.err
}

func TestPullSecrets(t *testing.T) {
	own := func(context.Context, *v1.Pod) ([]v1.Secret, error) {
		return []v1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "own"}}}, nil
	}
	for name, tc := range map[string]struct {
		opts   podsync.Options
		refs   []string
		want   []string
		events []string
	}{
		"none named":   {opts: podsync.Options{Objects: fakeObjects{}}},
		"there":        {opts: podsync.Options{Objects: fakeObjects{}}, refs: []string{"there", ""}, want: []string{"there"}},
		"no objects":   {refs: []string{"there"}},
		"own function": {opts: podsync.Options{Objects: fakeObjects{}, PullSecrets: own}, refs: []string{"there"}, want: []string{"own"}},
		"some missing": {
			opts: podsync.Options{Objects: fakeObjects{}}, refs: []string{"gone", "there", "away"},
			want: []string{"there"},
			events: []string{"FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (gone, " +
				"away); attempting to pull the image may not succeed."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var events []string
			tc.opts.NonBlocking, tc.opts.Event = true,
				func(e runtime.Event) { events = append(events, e.Reason+": "+e.Message) }
			tc.opts.PodsDir, tc.opts.Host = t.TempDir(), &runtime.Host{}
			deps := (&world{statuses: map[types.UID]v1.PodStatus{}}).deps()
			w := &capture{Runtime: deps.Runtime}
			pulls := &requests{}
			deps.Runtime, deps.Images = w, pulls
			s, err := podsync.New(deps, tc.opts)
			require.NoError(t, err)
			pod := makePod()
			for _, ref := range tc.refs {
				pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: ref})
			}
			_, err = s.SyncPod(t.Context(), podworkers.Create, pod, nothing())
			require.NoError(t, err)
			var got []string
			_, err = w.req.EnsureImage(t.Context(), runtime.ImageRequest{Image: "app:1"})
			require.NoError(t, err)
			assert.Empty(t, events, "the image is present, or needs no secret")
			for _, secret := range pulls.req.Secrets {
				got = append(got, secret.Name)
			}
			assert.Equal(t, "app:1", pulls.req.Image)
			assert.Same(t, pod, pulls.req.Pod)
			assert.Equal(t, tc.want, got)
			pulls.err = &runtime.ImageError{Reason: runtime.ReasonImagePullBackOff, BackingOff: true}
			_, err = w.req.EnsureImage(t.Context(), runtime.ImageRequest{Image: "app:1"})
			require.ErrorIs(t, err, pulls.err)
			assert.Empty(t, events, "nothing was pulled")
			pulls.err = &runtime.ImageError{Reason: runtime.ReasonImagePull}
			for range 2 {
				_, err = w.req.EnsureImage(t.Context(), runtime.ImageRequest{Image: "app:1"})
				require.ErrorIs(t, err, pulls.err)
			}
			assert.Equal(t, tc.events, events, "once a sync")
			assert.Equal(t, tc.opts.Objects == nil, w.req.Objects == nil)
		})
	}
}

func TestPullSecretsOfACancelledSync(t *testing.T) {
	w := &world{}
	s := newSyncer(t, w, podsync.Options{Objects: fakeObjects{},
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(runtime.Event) { t.Error("that is no failure of the pod") }}})
	pod := makePod()
	pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "there"}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.SyncPod(ctx, podworkers.Create, pod, nothing())
	require.NoError(t, err, "what to make of it is up to the runtime")
}
