package http_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/kubeletkit/kubeletkit/podconfig"
	podhttp "github.com/kubeletkit/kubeletkit/podconfig/http"
)

// A URL as the only source of a node's pods.
func Example() {
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx}]}\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, manifest)
	}))
	defer server.Close()

	source, err := podhttp.New(server.URL, podhttp.Options{Header: http.Header{"Authorization": {"Bearer token"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux, err := podconfig.New(podconfig.Options{NodeName: "edge-7", Sources: []podconfig.Source{source}})
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
	// ADD http default/web-edge-7
	// <nil>
}
