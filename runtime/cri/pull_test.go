package cri_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestPullPolicies(t *testing.T) {
	present, absent := []string{"app:1"}, []string(nil)
	tests := []struct {
		name   string
		image  string
		policy v1.PullPolicy
		have   []string
		pull   error
		// calls to the image service.
		want   []string
		reason string
		text   string
	}{
		{name: "always, there", image: "app:1", policy: v1.PullAlways, have: present, want: []string{"PullImage app:1", "ImageStatus sha256:app:1"}},
		{name: "if not present, there", image: "app:1", policy: v1.PullIfNotPresent, have: present, want: []string{"ImageStatus app:1"}},
		{name: "if not present, not there", image: "app:1", policy: v1.PullIfNotPresent, have: absent, want: []string{"ImageStatus app:1", "PullImage app:1", "ImageStatus sha256:app:1"}},
		{name: "never, there", image: "app:1", policy: v1.PullNever, have: present, want: []string{"ImageStatus app:1"}},
		{name: "never, not there", image: "app:1", policy: v1.PullNever, have: absent, want: []string{"ImageStatus app:1"},
			reason: "ErrImageNeverPull", text: `Container image "app:1" is not present with pull policy of Never`},
		{name: "no policy, with a tag", image: "app:1", have: present, want: []string{"ImageStatus app:1"}},
		{name: "no policy, no tag", image: "app", have: present, want: []string{"PullImage app:latest", "ImageStatus sha256:app:latest"}},
		{name: "a bad name", image: "App", policy: v1.PullAlways, reason: "InvalidImageName",
			text: `Failed to apply default image tag "App": couldn't parse image name "App": invalid reference format: repository name (library/App) must be lowercase`},
		{name: "no name", image: "", policy: v1.PullAlways, reason: "InvalidImageName",
			text: `Failed to apply default image tag "": couldn't parse image name "": invalid reference format`},
		{name: "failure", image: "app:1", policy: v1.PullAlways, pull: status.Error(codes.NotFound, "no such manifest"),
			want: []string{"PullImage app:1"}, reason: "ErrImagePull", text: "no such manifest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := newService(t, tt.have...)
			svc.Inject(fake.Fault{Call: "PullImage", Err: tt.pull})
			pod := podOf("a")
			pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = tt.image, tt.policy
			s := newSyncer(t, svc.client(cri.Options{}), pod)
			res, err := s.sync()
			var got []string
			for _, c := range svc.calls(true) {
				if strings.HasPrefix(c, "PullImage") || strings.HasPrefix(c, "ImageStatus") {
					got = append(got, c)
				}
			}
			assert.Equal(t, tt.want, got)
			if tt.reason == "" {
				require.NoError(t, err)
				assert.Equal(t, "sha256:app", svc.nameOf(svc.status("a").Image.Image)[:10],
					"the container is made from what was found")
				return
			}
			require.Error(t, err)
			assert.Equal(t, v1.ContainerStateWaiting{Reason: tt.reason, Message: tt.text}, res.Waiting["a"])
			assert.Nil(t, svc.newest("a"))
		})
	}
}

func TestImageInspectError(t *testing.T) {
	svc := newService(t, "app:1")
	svc.Inject(fake.Fault{Call: "ImageStatus", Err: errors.New("broken store")})
	res, err := newSyncer(t, svc.client(cri.Options{}), podOf("a")).sync()
	require.Error(t, err)
	assert.Equal(t, "ImageInspectError", res.Waiting["a"].Reason)
}

// The function of the sync replaces the pulls. It may find the image under another name.
func TestEnsureImage(t *testing.T) {
	svc := newService(t, "mirror/app:1")
	s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
	var asked []string
	s.more = func(req *runtime.PodSync) {
		req.EnsureImage = func(ctx context.Context, r runtime.ImageRequest) (*runtime.Image, error) {
			asked = append(asked, fmt.Sprint(r.Image, r.Policy, r.Container))
			return r.Store.Find(ctx, "mirror/app:1")
		}
	}
	s.mustSync()
	assert.Equal(t, []string{"app:1IfNotPresenta"}, asked)
	assert.Equal(t, "sha256:mirror/app:1", svc.nameOf(svc.status("a").Image.Image))
	assert.NotContains(t, strings.Join(svc.calls(true), " "), "PullImage")

	// A reason, and a time.
	svc.exit("a", 1)
	s.more = func(req *runtime.PodSync) {
		req.EnsureImage = func(context.Context, runtime.ImageRequest) (*runtime.Image, error) {
			return nil, &runtime.ImageError{Reason: "ImagePullBackOff", Message: "not yet", RetryAfter: time.Minute,
				BackingOff: true}
		}
	}
	res, err := s.sync()
	require.NoError(t, err, "a back-off is no failure")
	assert.Equal(t, v1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not yet"}, res.Waiting["a"])
	assert.Equal(t, time.Minute, res.RetryAfter)
	s.more = func(req *runtime.PodSync) {
		req.EnsureImage = func(context.Context, runtime.ImageRequest) (*runtime.Image, error) {
			return nil, errors.New("no archive")
		}
	}
	res, err = s.sync()
	require.ErrorContains(t, err, "container a: ErrImagePull: no archive")
	assert.Equal(t, "ErrImagePull", res.Waiting["a"].Reason)
	for want, ensure := range map[string]func() (*runtime.Image, error){
		"panic: broken":                 func() (*runtime.Image, error) { panic("broken") },
		"neither an image nor an error": func() (*runtime.Image, error) { return nil, nil },
	} {
		s.more = func(req *runtime.PodSync) {
			req.EnsureImage = func(context.Context, runtime.ImageRequest) (*runtime.Image, error) { return ensure() }
		}
		res, err = s.sync()
		require.ErrorContains(t, err, want)
		assert.Equal(t, "ErrImagePull", res.Waiting["a"].Reason)
	}
}

// A pod has as many volumes with images as its spec has room for.
func TestManyImageVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		svc.Inject(fake.Fault{Call: "PullImage", Delay: time.Second})
		pod := podOf("a")
		for i := range 300 {
			name := fmt.Sprintf("v%d", i)
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				Image: &v1.ImageVolumeSource{Reference: fmt.Sprintf("image%d:1", i), PullPolicy: v1.PullIfNotPresent},
			}})
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
				v1.VolumeMount{Name: name, MountPath: "/" + name})
		}
		s := newSyncer(t, svc.client(cri.Options{}), pod)
		s.more = func(req *runtime.PodSync) {
			req.Volumes = map[string]runtime.Volume{}
			for _, v := range pod.Spec.Volumes {
				req.Volumes[v.Name] = runtime.Volume{ReadOnly: true}
			}
		}
		s.mustSync()
		now, most := 0, 0
		type end struct {
			at time.Time
			by int
		}
		var ends []end
		for _, c := range svc.Calls(fake.Target{}) {
			if c.Method == "PullImage" {
				ends = append(ends, end{c.Began, 1}, end{c.Ended, -1})
			}
		}
		slices.SortFunc(ends, func(a, b end) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
		for _, e := range ends {
			now += e.by
			most = max(most, now)
		}
		assert.Len(t, ends, 2*301)
		assert.Equal(t, 32, most, "at the same time")
	})
}
