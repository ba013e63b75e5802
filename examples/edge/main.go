// Edge is a whole agent for a node without a cluster: manifests in a directory, and a container runtime. It links no
// client-go, and has about 25 MB of resident memory with 100 pods.
//
//	go build ./examples/edge
//	edge -socket unix:///run/containerd/containerd.sock -manifests /etc/manifests -root /var/lib/edge
//
// The agent stops every pod of the runtime that is not one of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal("edge: ", err)
	}
}

func run(ctx context.Context) error {
	socket := flag.String("socket", "unix:///run/containerd/containerd.sock", "CRI socket")
	manifests := flag.String("manifests", "/etc/manifests", "directory of pod manifests")
	root := flag.String("root", kubeletkit.DefaultRootDir, "directory of the agent, an absolute path")
	node := flag.String("node", "edge-7", "name of the node")
	flag.Parse()

	// Memory that the agent holds is missing on the node: collect garbage sooner, and return what the start has taken.
	debug.SetGCPercent(50)
	defer time.AfterFunc(20*time.Second, kubeletkit.ReleaseMemory).Stop()

	logger := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	rt, err := cri.Dial(ctx, *socket, cri.Options{Observer: runtime.Observer{Logger: logger}})
	if err != nil {
		return err
	}
	defer rt.Close()
	err = kubeletkit.Run(ctx, kubeletkit.Options{
		NodeName: *node, RootDir: *root, Runtime: rt, Observe: kubeletkit.Observe{Logger: logger},
		Sources: []podconfig.Source{file.New(*manifests, file.Options{Logger: logger})},
	})
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; run it as root, or give it a directory of this user with -root", err)
	}
	return err
}
