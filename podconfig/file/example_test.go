package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
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
