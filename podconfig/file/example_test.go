package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// A directory of manifests as the only source of a node's pods.
func Example() {
	dir, _ := os.MkdirTemp("", "manifests")
	defer os.RemoveAll(dir)
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx}]}\n"
	_ = os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(manifest), 0o600)

	mux, err := podconfig.New(podconfig.Options{
		NodeName: "edge-7",
		Sources:  []podconfig.Source{file.New(dir, file.Options{})},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()

	for change := range mux.Changes() {
		for _, pod := range change.Pods {
			fmt.Println(change.Op, change.Source, pod.Namespace+"/"+pod.Name)
		}
		cancel()
	}
	fmt.Println(<-done)
	// Output:
	// ADD file default/web-edge-7
	// <nil>
}

// Secrets from a directory of their own.
func ExampleNewObjects() {
	dir, _ := os.MkdirTemp("", "secrets")
	defer os.RemoveAll(dir)
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: db, namespace: shop}\nstringData: {user: admin}\n"
	_ = os.WriteFile(filepath.Join(dir, "db.yaml"), []byte(secret), 0o600)

	secrets := file.NewObjects(dir, file.Options{}) // for kubeletkit.Options.API.Objects
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- secrets.Watch(ctx, func([]objects.Ref) {}) }() // the agent does it
	db, err := secrets.Secret(ctx, "shop", "db")
	if err == nil {
		fmt.Println(string(db.Data["user"]))
	}
	cancel()
	fmt.Println(err, <-done)
	// Output:
	// admin
	// <nil> <nil>
}
