package kubelet_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A kubelet of a vendor: all that a kubelet has, and a rule of the vendor.
func ExampleMain() {
	main := func() {
		kubelet.Main(kubelet.Options{
			Name: "acme-kubelet",
			Join: []lifecycle.Component{lifecycle.AdmitterFunc("teams", func(req lifecycle.AdmitRequest) error {
				if req.Pod.Labels["team"] == "" {
					return lifecycle.Refuse("NoTeam", "pods on this node need the label team")
				}
				return nil
			})},
		})
	}
	_ = main
}

// A kubelet in a program with a main of its own, on a runtime in memory.
func ExampleNew() {
	root, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	rt := fake.New(fake.Options{})
	defer rt.Close()
	pods := make(chan []*v1.Pod, 1)
	pods <- []*v1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "example/web"}}},
	}}
	ctx, cancel := context.WithCancel(context.Background())
	opts := kubelet.Options{
		Name:    "acme-kubelet",
		Runtime: rt,
		Sources: []podconfig.Source{podconfig.NewChannel("fleet", pods)},
		Event: func(e runtime.Event) {
			if e.Reason == "Started" {
				fmt.Println(e.Message)
				cancel()
			}
		},
		Logger: logr.FromSlogHandler(slog.DiscardHandler),
		Configuration: map[string]any{"failSwapOn": false, "failCgroupV1": false, "healthzPort": 0,
			"enableServer": false, "podLogsDir": filepath.Join(root, "logs")},
	}
	config, err := kubelet.Load([]string{"--root-dir", root}, opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	k, err := kubelet.New(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(k.Run(ctx))
	// Output:
	// Container started
	// <nil>
}
