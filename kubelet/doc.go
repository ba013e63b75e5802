// Package kubelet is a whole kubelet as a library: an agent with all components of this module, kubelet's flags and its
// KubeletConfiguration, kubelet's ports, and commands for the machine on which it runs. A program adds its own:
//
//	func main() {
//		kubelet.Main(kubelet.Options{
//			Name: "acme-kubelet",
//			Join: []lifecycle.Component{serialPorts()},
//		})
//	}
//
// [Main] is a program of its own. It reads the arguments, the environment and the signals of the process, and ends the
// process. A program with a main of its own uses [Command], or [Load], [New] and [Kubelet.Run]. These change nothing of
// the process but what the configuration requests, such as oomScoreAdj, and any number of kubelets with root
// directories of their own can run in one process:
//
//	config, err := kubelet.Load(args, opts)
//	k, err := kubelet.New(ctx, config, opts)
//	err = k.Run(ctx) // blocks; pods go on running when it returns
//
// The configuration is that of kubelet, from flags, from a file, from a directory of files and from
// [Options.Configuration]. docs/operate/configure.md has what differs. [Options.Without] leaves capabilities out, and
// [Options.Join], [Options.Sources], [Options.Plugins], [Options.Override] and [Options.Runtime] add to an agent or
// replace parts of it, as those of [kubeletkit.Options] do.
//
// # The embedded runtime
//
// Without an endpoint of a container runtime, the containers are processes of the machine, see package
// runtime/process. That runtime executes the program again for each container, so a program calls [process.Init] before
// all else in main. Main does it.
package kubelet

import (
	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// For the links of the package's documentation.
var (
	_ = kubeletkit.New
	_ = process.Init
)
