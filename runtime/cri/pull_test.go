package cri_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

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
		{name: "registry down", image: "app:1", policy: v1.PullAlways, pull: status.Error(codes.Unknown, "RegistryUnavailable: dial tcp: refused"),
			want: []string{"PullImage app:1"}, reason: "RegistryUnavailable",
			text: "image pull failed for app:1 because the registry is unavailable: dial tcp: refused"},
		{name: "bad signature", image: "app:1", policy: v1.PullAlways, pull: status.Error(codes.Unknown, "SignatureValidationFailed: no key"),
			want: []string{"PullImage app:1"}, reason: "SignatureValidationFailed",
			text: "image pull failed for app:1 because the signature validation failed: no key"},
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
				assert.Equal(t, "sha256:app", svc.nameOf(svc.status("a").Image.Image)[:10], "the container is made from what was found")
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

func TestPullBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		refused := fake.Fault{Call: "PullImage", Err: errors.New("refused")}
		mend := svc.Inject(refused)
		s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
		for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			res, err := s.sync()
			require.ErrorContains(t, err, "pod default/web(uid-1), container a: ErrImagePull: PullImage: refused")
			require.Equal(t, want*time.Second, res.RetryAfter)

			time.Sleep(time.Second)
			svc.calls()
			res, err = s.sync()
			require.NoError(t, err, "a back-off is no failure")
			require.Equal(t, (want-1)*time.Second, res.RetryAfter)
			require.Equal(t, v1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: `Back-off pulling image "app:1": ErrImagePull: refused`,
			}, res.Waiting["a"])
			require.Empty(t, svc.calls())
			time.Sleep(res.RetryAfter)
		}
		mend()
		res := s.mustSync()
		assert.Empty(t, res.Waiting)
		assert.Contains(t, s.eventLines(), `spec.containers{a} Pulled: Successfully pulled image "app:1" in 0s (0s including waiting). Image size: 1048576 bytes.`)

		// A success ends the back-off: the next failure begins a new one.
		_, images := svc.Clients()
		_, err := images.RemoveImage(t.Context(), &criv1.RemoveImageRequest{Image: &criv1.ImageSpec{Image: "app:1"}})
		require.NoError(t, err)
		svc.Inject(refused)
		svc.exit("a", 1)
		res, err = s.sync()
		require.ErrorContains(t, err, "ErrImagePull")
		assert.Equal(t, 10*time.Second, res.RetryAfter)
	})
}

func TestPullsSideBySide(t *testing.T) {
	tests := []struct {
		name string
		opts cri.Options
		want time.Duration
	}{
		{"no bound", cri.Options{}, time.Minute},
		{"two at once", cri.Options{MaxParallelPulls: 2}, 2 * time.Minute},
		{"one in 10 s", cri.Options{PullQPS: 0.1}, time.Minute + 20*time.Second},
		{"one in 10 s, a burst of two", cri.Options{PullQPS: 0.1, PullBurst: 2}, time.Minute + 10*time.Second},
		{"serial", cri.Options{SerializePulls: true, MaxParallelPulls: 5}, 3 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newService(t)
				svc.Inject(fake.Fault{Call: "PullImage", Delay: time.Minute})
				pod := podOf("a", "b", "c")
				for i, image := range []string{"one:1", "two:1", "three:1"} {
					pod.Spec.Containers[i].Image = image
				}
				began := time.Now()
				newSyncer(t, svc.client(tt.opts), pod).mustSync()
				assert.Equal(t, tt.want, time.Since(began))
				if !tt.opts.SerializePulls {
					return
				}
				var last time.Time
				for _, c := range svc.Calls(fake.Target{}) {
					if c.Method == "PullImage" {
						assert.False(t, c.Began.Before(last), "one at a time")
						last = c.Ended
					}
				}
			})
		})
	}
}

func TestARateLimitedPullIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		pod := podOf("a", "b")
		pod.Spec.Containers[1].Image = "two:1"
		s := newSyncer(t, svc.client(cri.Options{PullQPS: 0.001}), pod)
		req := s.request()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.rt.SyncPod(ctx, req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Hour) // the bucket is full again
		s.mustSync()
	})
}

func TestPullTriesCredentials(t *testing.T) {
	svc := newService(t)
	svc.Inject(fake.Fault{Call: "PullImage", Times: 1, Err: status.Error(codes.Unauthenticated, "denied")})
	pod := podOf("a")
	pod.Spec.Containers[0].Image = "reg.example.com/team/app:1"
	s := newSyncer(t, svc.client(cri.Options{}), pod)
	s.more = func(req *runtime.PodSync) {
		for i, auths := range []string{
			`{"auths":{"reg.example.com":{"username":"wrong","password":"x"}}}`,
			`{"auths":{"reg.example.com":{"username":"right","password":"y"},"other.com":{"username":"other"}}}`,
		} {
			secret := v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(auths)}}
			secret.Namespace, secret.Name = "default", strconv.Itoa(i)
			req.PullSecrets = append(req.PullSecrets, secret)
		}
	}
	s.mustSync()
	calls := svc.calls()
	assert.Contains(t, calls, "PullImage reg.example.com/team/app:1 wrong")
	assert.Contains(t, calls, "PullImage reg.example.com/team/app:1 right")
	assert.NotContains(t, calls, "PullImage reg.example.com/team/app:1 other")
}

// The node has credentials for all pods, as kubelet has in /var/lib/kubelet/config.json.
func TestPullWithTheCredentialsOfTheNode(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.json")
	svc := newService(t)
	svc.Inject(fake.Fault{Call: "PullImage", Times: 1, Err: status.Error(codes.Unauthenticated, "denied")})
	pod := podOf("a")
	pod.Spec.Containers[0].Image = "reg.example.com/team/app:1"
	s := newSyncer(t, svc.client(cri.Options{DockerConfig: config}), pod)
	s.more = func(req *runtime.PodSync) {
		secret := v1.Secret{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"reg.example.com":{"username":"pod"}}`)}}
		req.PullSecrets = []v1.Secret{secret}
	}
	require.NoError(t, os.WriteFile(config, []byte(`{"auths":{"reg.example.com":{"username":"node"}}}`), 0o600))
	s.mustSync()
	var pulls []string
	for _, c := range svc.calls() {
		if strings.HasPrefix(c, "PullImage") {
			pulls = append(pulls, c)
		}
	}
	assert.Equal(t, []string{"PullImage reg.example.com/team/app:1 pod", "PullImage reg.example.com/team/app:1 node"}, pulls)
}

// A pod with any number of credentials does not hold up the pulls of others.
func TestManyCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		svc.Inject(fake.Fault{Call: "PullImage", Times: 150, Delay: time.Second, Err: status.Error(codes.Unauthenticated, "denied")})
		rt := svc.client(cri.Options{SerializePulls: true})
		greedy := podOf("a")
		greedy.Spec.Containers[0].Image = "reg.example.com/team/app:1"
		s := newSyncer(t, rt, greedy)
		s.more = func(req *runtime.PodSync) {
			for i := range 300 {
				secret := v1.Secret{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: fmt.Appendf(nil, `{"reg.example.com":{"username":"u%d"}}`, i/2)}}
				secret.Namespace, secret.Name = "default", strconv.Itoa(i)
				req.PullSecrets = append(req.PullSecrets, secret)
			}
		}
		ended := make(chan error)
		go func() {
			_, err := s.rt.SyncPod(t.Context(), s.request())
			ended <- err
		}()
		time.Sleep(10*time.Second + time.Second/2)
		other := podOf("b")
		other.UID, other.Name = "other", "other"
		other.Spec.Containers[0].Image = "one:1"
		began := time.Now()
		_, _ = newSyncer(t, rt, other).rt.SyncPod(t.Context(), newSyncer(t, rt, other).request())
		assert.Less(t, time.Since(began), 5*time.Second, "it waits for one try")
		err := <-ended
		require.ErrorContains(t, err, "denied")
		assert.Less(t, len(err.Error()), 1000)
		tries := 0
		for _, c := range svc.Calls(fake.Target{}) {
			if c.Method == "PullImage" {
				tries++
			}
		}
		assert.Equal(t, 100+1, tries, "and that of the other")
	})
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
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
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
