package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A container that waits for a secret is started within two seconds of its appearance,
// however long the back-off of its pod has become, and is left alone when the secret
// changes.
func TestAContainerWaitsForItsSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, store := t.TempDir(), objects.New()
		n := &node{runtime: fake.New(fake.Options{}), source: podconfigfake.NewSource("test"), root: root,
			done: make(chan error, 1)}
		var err error
		n.Agent, err = kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: root, Runtime: n.runtime,
			Sources: []podconfig.Source{n.source}, API: kubeletkit.API{Objects: store},
			Host: &runtime.Host{Hostname: "host", IPs: []string{"192.0.2.1"}},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		n.cancel = cancel
		go func() { n.done <- n.Run(ctx) }()
		defer n.stop(t)

		pod := makePod("web")
		pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A",
			ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "db"}, Key: "a",
			}}}}
		main := func(
			after time.Duration) v1.ContainerStatus {
			return n.after(after)["web"].Status.ContainerStatuses[0]
		}
		waits := func(after time.Duration, message string) {
			t.Helper()
			waiting := main(after).State.Waiting
			require.NotNil(t, waiting)
			assert.Equal(t, v1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: message}, *waiting)
		}
		secret := func(data map[string][]byte) *v1.Secret {
			return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "db"}, Data: data}
		}
		n.source.Set(pod)
		waits(10*time.Second, "couldn't get secret default/db: "+objects.ErrNotSet.Error())
		store.Set()
		waits(time.Minute, `secret "db" not found`)
		store.Set(secret(nil))
		waits(2*time.Second, "couldn't find key a in Secret default/db")
		time.Sleep(time.Minute)
		store.Set(secret(map[string][]byte{"a": []byte("1")}))
		first := main(2 * time.Second)
		require.NotNil(t, first.State.Running)
		store.Set(secret(map[string][]byte{"a": []byte("2")}))
		assert.Equal(t, first.ContainerID, main(time.Minute).ContainerID)
	})
}
