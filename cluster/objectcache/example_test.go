package objectcache_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/cluster/objectcache"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

// A pod of the API server refers to a secret.
func Example() {
	client := apitest.NewClientset(&v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Data:       map[string][]byte{"user": []byte("admin")},
	})
	cache, err := objectcache.New(client, "edge-7", objectcache.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cache.Run(ctx) }() // the agent runs it

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "shop", Name: "web"}}
	pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "db"}}
	cache.Update([]*v1.Pod{pod}, nil) // an observer of podsource calls this
	secret, err := cache.Secret(ctx, "shop", "db")
	fmt.Println(string(secret.Data["user"]), err)

	cache.Update(nil, []*v1.Pod{pod})
	_, err = cache.Secret(ctx, "shop", "db")
	fmt.Println(err)

	cancel()
	<-done
	// Output:
	// admin <nil>
	// secret shop/db: no pod that the API server has bound to this node refers to it
}
