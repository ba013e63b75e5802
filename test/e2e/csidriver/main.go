// Csidriver is the CSI driver of the tests as a program, see package internal/csidriver. It runs until SIGTERM or
// SIGINT. After a fault that ends it, its exit code is 3.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
)

func main() {
	err := run(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, csidriver.ErrExit):
		os.Exit(3)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var (
		o       csidriver.Options
		faults  []csidriver.Fault
		volumes = map[string]int64{}
		flags   = flag.NewFlagSet("csidriver", flag.ContinueOnError)
	)
	flags.StringVar(&o.Name, "name", csidriver.DefaultName, "the name of the driver")
	flags.StringVar(&o.Dir, "dir", "", "the directory of the volumes and of the state")
	flags.StringVar(&o.Socket, "socket", "", "the socket of the services")
	flags.StringVar(&o.Endpoint, "endpoint", "", "the socket that the registration names, if it has another path there")
	flags.StringVar(&o.Registry, "registry", "", "the directory of the socket of the registration")
	flags.StringVar(&o.Control, "control", "", "the socket for tests")
	flags.StringVar(&o.NodeID, "node-id", "", "the ID of the node")
	flags.Int64Var(&o.MaxVolumes, "max-volumes", 0, "how many volumes the node can have")
	flags.BoolVar(&o.Links, "links", false, "use links in place of mounts")
	flags.StringVar(&o.FileSystem, "file-system", "", "the file system that volumes have, on loop devices: ext4")
	flags.BoolVar(&o.KeepCalls, "keep-calls", false, "keep the calls in the directory")
	list := func(name, usage string, set func([]string)) {
		flags.Func(name, usage, func(text string) error {
			set(strings.FieldsFunc(text, func(r rune) bool { return r == ',' }))
			return nil
		})
	}
	list("versions", "the versions that the registration names", func(l []string) { o.Versions = l })
	list("nodes", "the IDs of other nodes", func(l []string) { o.Nodes = l })
	flags.Func("topology", "a label of the node, as `key=value`; can be repeated", func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("no =")
		}
		if o.Topology == nil {
			o.Topology = map[string]string{}
		}
		o.Topology[key] = value
		return nil
	})
	flags.Func("node-capabilities", "those of the Node service, joined by commas; default all", func(text string) error {
		var err error
		o.NodeCapabilities, err = capabilities[csi.NodeServiceCapability_RPC_Type](text,
			csi.NodeServiceCapability_RPC_Type_value)
		return err
	})
	flags.Func("controller-capabilities", "those of the Controller service", func(text string) error {
		var err error
		o.ControllerCapabilities, err = capabilities[csi.ControllerServiceCapability_RPC_Type](text,
			csi.ControllerServiceCapability_RPC_Type_value)
		return err
	})
	flags.Func("volume", "a volume that there is, as `ID=bytes`; can be repeated", func(text string) error {
		id, size, _ := strings.Cut(text, "=")
		n, err := strconv.ParseInt(size, 10, 64)
		volumes[id] = n
		return err
	})
	flags.Func("fault", "a fault, in `JSON`; can be repeated", func(text string) error {
		var f csidriver.Fault
		err := json.Unmarshal([]byte(text), &f)
		faults = append(faults, f)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	driver, err := csidriver.New(o)
	if err != nil {
		return err
	}
	for id, capacity := range volumes {
		if err := driver.AddVolume(id, capacity); err != nil {
			return err
		}
	}
	for _, f := range faults {
		driver.Inject(f)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return driver.Run(ctx)
}

// capabilities returns those that a text names. An empty text has none.
func capabilities[T ~int32](text string, values map[string]int32) ([]T, error) {
	out := []T{}
	for name := range strings.SplitSeq(text, ",") {
		value, ok := values[name]
		if !ok && name != "" {
			return nil, fmt.Errorf("no capability %q", name)
		}
		if ok {
			out = append(out, T(value))
		}
	}
	return out, nil
}
