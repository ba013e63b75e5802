package cluster

import (
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A pod that is restored while the API server is away gets the secret that it had from the API
// server, and never one of that name that only the node has. A static pod gets the node's.
func TestRestoredPodsAndSecretsOfTheNode(t *testing.T) {
	onNode(t, func(r *rig) {
		secret := func(name, value string) *v1.Secret {
			return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Data: map[string][]byte{"key": []byte(value)}}
		}
		refers := func(pod *v1.Pod, secret string) *v1.Pod {
			pod.Spec.Containers[0].Args = []string{"$(KEY)"}
			pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "KEY",
				ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
					LocalObjectReference: v1.LocalObjectReference{Name: secret}, Key: "key",
				}}}}
			manifest.SetDefaults(pod) // as the API server does
			return pod
		}
		r.stop()
		var mu sync.Mutex
		started := map[string][]string{} // the arguments of the instances, by pod
		r.rt.Close()
		r.rt = fake.New(fake.Options{Name: "containerd", Dir: r.root, Behavior: func(c fake.Container) fake.Behavior {
			mu.Lock()
			defer mu.Unlock()
			started[c.Pod.Name] = append(started[c.Pod.Name], c.Args...)
			return fake.Behavior{}
		}})
		took := func() map[string][]string {
			mu.Lock()
			defer mu.Unlock()
			was := started
			started = map[string][]string{}
			return was
		}
		var store *checkpoint.Dir
		r.change = func(_ *Config, opts *kubeletkit.Options) {
			var err error
			store, err = checkpoint.New(filepath.Join(r.root, "kept"), checkpoint.Options{})
			require.NoError(r, err)
			local := objects.New()
			own := secret("own", "of the node")
			own.UID = "of a manifest" // copied from a cluster
			local.Set(secret("only-local", "of the node"), secret("both", "of the node"), own)
			opts.Checkpoint, opts.API.Objects = store, local
		}
		static := refers(bound("static"), "own")
		static.UID = "static"
		r.static.Set(static)
		r.api.Put("secrets", secret("both", "of the API"))
		r.start()
		r.api.Create(refers(bound("waits"), "only-local"))
		r.api.Create(refers(bound("runs"), "both"))
		r.after(time.Minute)
		want := map[string][]string{"static": {"of the node"}, "runs": {"of the API"}}
		require.Equal(r, want, took())

		r.stop()
		r.rt.Restart(fake.Reboot)
		r.api.Before(func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		r.start()
		r.after(time.Minute)
		assert.Equal(r, want, took())
		r.api.Before(nil)
		r.after(time.Minute)
		assert.Empty(r, took(), "nothing starts on the return of the API server")
		waiting := r.api.Get("default", "waits").Status.ContainerStatuses[0].State.Waiting
		require.NotNil(r, waiting)
		assert.Equal(r, `secret "only-local" not found`, waiting.Message)

		// The checkpoint has the secret of the static pod, and the API server does not answer.
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Resource == "secrets" {
				return nil, errors.New("connection refused")
			}
			return nil, nil
		})
		r.api.Create(refers(bound("curious"), "own"))
		r.after(time.Minute)
		assert.Empty(r, took())
		r.stop()
		r.start()
		r.after(time.Minute)
		assert.Empty(r, took(), "nor after a restart of the agent")
		r.api.Before(nil)
		r.after(5 * time.Minute)
		assert.Empty(r, took())
		assert.Equal(r, `secret "own" not found`, r.api.Get("default",
			"curious").Status.ContainerStatuses[0].State.Waiting.Message)
	})
}
