package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/events"
	"github.com/kubeletkit/kubeletkit/cluster/objectcache"
	"github.com/kubeletkit/kubeletkit/cluster/runtimeclass"
	"github.com/kubeletkit/kubeletkit/cluster/services"
	"github.com/kubeletkit/kubeletkit/cluster/tokens"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	kit "github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// TestObjectsOfACluster has a real API server answer what a node requests for its pods.
func TestObjectsOfACluster(t *testing.T) {
	t.Parallel()
	server := harness.NewAPIServer(t)
	client, err := kubernetes.NewForConfig(server.REST())
	require.NoError(t, err)
	ctx := t.Context()
	core := client.CoreV1()
	_, err = core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.ServiceAccounts("shop").Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	pod, err := core.Pods("shop").Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: v1.PodSpec{
			NodeName: "node", ServiceAccountName: "web", ImagePullSecrets: []v1.LocalObjectReference{{Name: "pull"},
				{Name: "missing"}},
			Containers: []v1.Container{{Name: "main", Image: "image",
				VolumeMounts: []v1.VolumeMount{{Name: "fixed", MountPath: "/fixed"}}}},
			Volumes: []v1.Volume{{Name: "fixed", VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "fixed"}},
			}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	t.Run("secrets and config maps", func(t *testing.T) {
		secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull"}, Data: map[string][]byte{"k": []byte("1")}}
		_, err := core.Secrets("shop").Create(ctx, secret, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = core.ConfigMaps("shop").Create(ctx, &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Immutable: new(true), Data: map[string]string{"k": "1"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		cache, err := objectcache.New(client, "node", objectcache.Options{})
		require.NoError(t, err)
		var mu sync.Mutex
		reported := map[objects.Ref]bool{}
		running(t, cache.Run, func(ctx context.Context) error {
			return cache.Watch(ctx, func(refs []objects.Ref) {
				mu.Lock()
				defer mu.Unlock()
				for _, ref := range refs {
					reported[ref] = true
				}
			})
		})
		cache.Update([]*v1.Pod{pod}, nil)
		got, err := cache.Secret(ctx, "shop", "pull")
		require.NoError(t, err)
		assert.Equal(t, "1", string(got.Data["k"]))
		fixed, err := cache.ConfigMap(ctx, "shop", "fixed")
		require.NoError(t, err)
		assert.Equal(t, "1", fixed.Data["k"])
		_, err = cache.Secret(ctx, "shop", "missing")
		assert.True(t, apierrors.IsNotFound(err), err)

		secret.Data["k"] = []byte("2")
		_, err = core.Secrets("shop").Update(ctx, secret, metav1.UpdateOptions{})
		require.NoError(t, err)
		_, err = core.Secrets("shop").Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "missing"}},
			metav1.CreateOptions{})
		require.NoError(t, err)
		harness.Eventually(t, within, "changes reported", func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(reported) != 2 {
				return fmt.Errorf("reported: %v", reported)
			}
			return nil
		})
		got, err = cache.Secret(ctx, "shop", "pull")
		require.NoError(t, err)
		assert.Equal(t, "2", string(got.Data["k"]))
		_, err = cache.Secret(ctx, "shop", "missing")
		assert.NoError(t, err)
	})

	t.Run("tokens", func(t *testing.T) {
		source, err := tokens.New(client, tokens.Options{})
		require.NoError(t, err)
		running(t, source.Run)
		request := func(uid string) *authenticationv1.TokenRequest {
			r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: new(int64(3607)),
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
					Name: "web", UID: pod.UID},
			}}
			if uid != "" {
				r.Spec.BoundObjectRef.UID = "another"
			}
			return r
		}
		token, err := source.Token(ctx, "shop", "web", request(""))
		require.NoError(t, err)
		again, err := source.Token(ctx, "shop", "web", request(""))
		require.NoError(t, err)
		assert.Equal(t, token.Status.Token, again.Status.Token)
		review, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.Equal(t, "system:serviceaccount:shop:web", review.Status.User.Username)
		_, err = source.Token(ctx, "shop", "web", request("another"))
		assert.True(t, apierrors.IsConflict(err), err)
		_, err = source.Token(ctx, "shop", "missing", request(""))
		assert.True(t, apierrors.IsNotFound(err), err)
	})

	t.Run("services", func(t *testing.T) {
		_, err := core.Services("shop").Create(ctx, &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: v1.ServiceSpec{ClusterIP: "10.99.0.7",
				Ports: []v1.ServicePort{{Port: 5432}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		s, err := services.New(client, services.Options{})
		require.NoError(t, err)
		running(t, s.Run)
		harness.Eventually(t, time.Minute, "the service kubernetes", func() error { // the API server makes it
			env, err := s.Env(ctx, pod)
			values := map[string]string{}
			for _, v := range env {
				values[v.Name] = v.Value
			}
			if values["KUBERNETES_SERVICE_HOST"] != "10.99.0.1" || values["DB_PORT"] != "tcp://10.99.0.7:5432" {
				return errors.Join(err, fmt.Errorf("variables: %v", values))
			}
			return err
		})
	})

	t.Run("runtime classes", func(t *testing.T) {
		_, err := client.NodeV1().RuntimeClasses().Create(ctx,
			&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "kata"},
			metav1.CreateOptions{})
		require.NoError(t, err)
		classes, err := runtimeclass.New(client, runtimeclass.Options{})
		require.NoError(t, err)
		running(t, classes.Run)
		var handler string
		harness.Eventually(t, within, "the runtime class", func() (err error) {
			// each call waits a second for the API server
			handler, err = classes.Handler("sandboxed")
			return err
		})
		assert.Equal(t, "kata", handler)
		_, err = classes.Handler("missing")
		assert.True(t, apierrors.IsNotFound(err), err)
	})

	t.Run("events", func(t *testing.T) {
		recorder, err := events.New(client, "node", events.Options{})
		require.NoError(t, err)
		running(t, recorder.Run)
		for range 3 {
			recorder.Event(kit.Event{Pod: kit.RefOf(pod), FieldPath: "spec.containers{main}", Type: v1.EventTypeWarning,
				Reason: "BackOff", Message: "again"})
		}
		recorder.Event(kit.Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."})
		harness.Eventually(t, within, "the events", func() error {
			of := func(namespace, selector string) string {
				list, err := core.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
				if err != nil {
					return err.Error()
				}
				var got string
				for _, e := range list.Items {
					got += fmt.Sprintf("%s %s x%d", e.InvolvedObject.FieldPath, e.Reason, e.Count)
				}
				return got
			}
			// These are the selectors of kubectl describe.
			if got := of("shop", "involvedObject.kind=Pod,involvedObject.name=web,involvedObject.uid="+
				string(pod.UID)); got != "spec.containers{main} BackOff x3" {
				return fmt.Errorf("events of the pod: %s", got)
			}
			if got := of("", "involvedObject.kind=Node,involvedObject.uid=node"); got != " Starting x1" {
				return fmt.Errorf("events of the node: %s", got)
			}
			return nil
		})
	})
}

// running runs the functions until the end of the test.
func running(t *testing.T, runs ...func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for _, run := range runs {
		wg.Go(func() { assert.NoError(t, run(ctx)) })
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}
