package objects_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// An embedder's control plane sends a secret.
func Example() {
	store := objects.New() // for kubeletkit.Options.API.Objects
	store.Set(&v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Data:       map[string][]byte{"user": []byte("admin")},
	})
	ctx := context.Background()
	secret, err := store.Secret(ctx, "shop", "db")
	fmt.Println(string(secret.Data["user"]), err)
	_, err = store.ConfigMap(ctx, "shop", "db")
	fmt.Println(err)
	// Output:
	// admin <nil>
	// configmap "db" not found
}

// A pod takes its environment from a secret and its image from a private registry.
func ExampleReferences() {
	var pod v1.Pod
	pod.Namespace, pod.Name = "shop", "web"
	pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "registry"}}
	pod.Spec.Containers = []v1.Container{{EnvFrom: []v1.EnvFromSource{
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "db"}}},
	}}}
	for _, ref := range objects.References(&pod) {
		fmt.Println(ref)
	}
	// Output:
	// secret shop/registry
	// secret shop/db
}
