package objects_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// An embedder's control plane has sent a secret.
func Example() {
	store := objects.New() // for kubeletkit.Options.Objects
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
