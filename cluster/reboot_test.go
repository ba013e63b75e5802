package cluster

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster/objectcache"
	"github.com/kubeletkit/kubeletkit/cluster/runtimeclass"
	"github.com/kubeletkit/kubeletkit/cluster/services"
	"github.com/kubeletkit/kubeletkit/cluster/tokens"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// apiOfObjects is an API server with what one pod needs. If it is away, each request fails.
func apiOfObjects(away bool) *apitest.Clientset {
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	client := apitest.NewClientset(
		&v1.Secret{ObjectMeta: in("default", "db"), Data: map[string][]byte{"user": []byte("admin")}},
		&v1.Service{ObjectMeta: in("default", "kubernetes"), Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1",
			Ports: []v1.ServicePort{{Port: 443}}}},
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "kata"},
	)
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, kruntime.Object, error) {
		answer := a.(clienttesting.CreateActionImpl).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		answer.Status.Token = "token"
		return true, answer, nil
	})
	if away {
		err := errors.New("connection refused")
		client.PrependReactor("*", "*", func(clienttesting.Action) (bool, kruntime.Object,
			error) {
			return true, nil, err
		})
		client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface,
			error) {
			return true, nil, err
		})
	}
	return client
}

// A pod of the API server runs again after a reboot although the API server cannot be
// reached: with its secrets, the variables of services, its runtime class and its token.
func TestRebootWithoutTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testpod.New("web", testpod.Restart(v1.RestartPolicyAlways), testpod.Containers("main"))
		pod.Spec.NodeName, pod.Spec.RuntimeClassName = "node", new("sandboxed")
		pod.Spec.Containers[0].Args = []string{"$(USER)@$(KUBERNETES_SERVICE_HOST)"}
		pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "USER",
			ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "db"}, Key: "user",
			}}}}
		manifest.SetDefaults(pod)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}}

		root := t.TempDir()
		var classes *runtimeclass.Classes // of the present life
		var mu sync.Mutex
		var started [][]string // the arguments of the instances
		rt := fake.New(fake.Options{Behavior: func(c fake.Container) fake.Behavior {
			mu.Lock()
			defer mu.Unlock()
			started = append(started, c.Args)
			return fake.Behavior{}
		}, CRI: cri.Options{RuntimeHandler: func(class string) (string, error) { return classes.Handler(class) }}})
		life := func(away bool, during func(tokens *tokens.Tokens)) {
			t.Helper()
			client := apiOfObjects(away)
			store, err := checkpoint.New(filepath.Join(root, "kept"), checkpoint.Options{})
			require.NoError(t, err)
			cache, err := objectcache.New(client, "node", objectcache.Options{})
			require.NoError(t, err)
			s, err := services.New(client, services.Options{Checkpoint: store})
			require.NoError(t, err)
			tok, err := tokens.New(client, tokens.Options{Checkpoint: store})
			require.NoError(t, err)
			classes, err = runtimeclass.New(client, runtimeclass.Options{Checkpoint: store})
			require.NoError(t, err)
			source := podconfigfake.NewSource(podspec.SourceAPI)
			if !away {
				cache.Update([]*v1.Pod{pod}, nil)
				source.Set(pod)
			}
			agent, err := kubeletkit.New(kubeletkit.Options{
				NodeName: "node", RootDir: root, Runtime: rt, Host: &runtime.Host{PodLogsDir: filepath.Join(root,
					"logs")},
				Sources: []podconfig.Source{source}, Checkpoint: store,
				API: kubeletkit.API{Objects: cache, ServiceEnv: s.Env},
			})
			require.NoError(t, err)
			for name, run := range map[string]func(context.Context) error{"objects": cache.Run, "services": s.Run,
				"tokens": tok.Run, "classes": classes.Run} {
				require.NoError(t, agent.Add(name, run))
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- agent.Run(ctx) }()
			time.Sleep(time.Minute)
			during(tok)
			cancel()
			require.NoError(t, <-done)
		}
		runs := func(tokens *tokens.Tokens) {
			t.Helper()
			token, err := tokens.Token(t.Context(), "default", "web", request)
			require.NoError(t, err)
			assert.Equal(t, "token", token.Status.Token)
			assert.Len(t, rt.Running(fake.Target{}), 1)
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, [][]string{{"admin@10.0.0.1"}}, started)
			started = nil
		}
		life(false, runs)
		rt.Restart(fake.Reboot)
		require.Empty(t, rt.Running(fake.Target{}))
		life(true, runs)
	})
}
