// Device gives pods the serial lines of a machine, to which Modbus devices are attached, as the resource
// example.com/modbus. It shows both ways:
//
// As an agent with the devices of the node itself. This takes a few lines, and no gRPC between two processes:
//
//	sudo go run ./examples/device -manifests ./manifests /dev/ttyUSB0 /dev/ttyUSB1
//
// As a device plugin of any kubelet, or of minikubelet:
//
//	sudo go run ./examples/device -plugin /var/lib/kubelet/device-plugins /dev/ttyUSB0 /dev/ttyUSB1
//
// A pod requests a line in its limits, and finds it at /dev/modbus:
//
//	resources: {limits: {example.com/modbus: 1}}
//
// A licence, a slot or any other thing that is counted is a device without a path.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

const modbus = "example.com/modbus"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "device:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("device", flag.ContinueOnError)
	plugins := flags.String("plugin", "", "directory of the device plugins of a kubelet; if empty, the program is "+
		"an agent itself")
	socket := flags.String("socket", "unix:///run/containerd/containerd.sock", "CRI socket")
	manifests := flags.String("manifests", "manifests", "directory of pod manifests")
	root := flags.String("root", kubeletkit.DefaultRootDir, "directory of the agent, an absolute path")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *plugins != "" {
		return newPlugin(*plugins, flags.Args()).run(ctx)
	}
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	rt, err := cri.Dial(ctx, *socket, cri.Options{Observer: runtime.Observer{Logger: log}})
	if err != nil {
		return err
	}
	defer rt.Close()
	agent, err := newAgent(rt, file.New(*manifests, file.Options{}), *root, flags.Args(), log)
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}

// newAgent composes the agent.
func newAgent(rt runtime.Runtime, source podconfig.Source, rootDir string, lines []string,
	log logr.Logger) (*kubeletkit.Agent, error) {
	edits := map[string]runtime.ContainerEdits{}
	for _, path := range lines {
		edits[filepath.Base(path)] = runtime.ContainerEdits{Devices: []runtime.Device{{HostPath: path,
			ContainerPath: "/dev/modbus", Permissions: "rw"}}}
	}
	manager, err := devices.New(filepath.Join(rootDir, "devices"),
		devices.Options{Providers: []devices.Provider{devices.Fixed(modbus, edits)}})
	if err != nil {
		return nil, err
	}
	return kubeletkit.New(kubeletkit.Options{
		NodeName: "gateway", RootDir: rootDir, Runtime: rt, Sources: []podconfig.Source{source},
		Join: []lifecycle.Component{manager}, Observe: kubeletkit.Observe{Logger: log},
	})
}
