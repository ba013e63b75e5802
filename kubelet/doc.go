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
// the process but the settings below, and any number of kubelets with root
// directories of their own can run in one process:
//
//	config, err := kubelet.Load(args, opts)
//	k, err := kubelet.New(ctx, config)
//	err = k.Run(ctx) // blocks; pods go on running when it returns
//
// The configuration is that of kubelet, from flags, from a file, from a directory of files and from
// [Options.Configuration]. docs/operate/configure.md has what differs. [Options.Without] leaves capabilities out, and
// [Options.Join], [Options.Sources], [Options.Volumes], [Options.PersistentVolumes], [Options.Probes],
// [Options.Override] and [Options.Runtime] add to an agent or replace parts of it, as those of [kubeletkit.Options] do.
//
// # The embedded runtime
//
// With the embedded runtime, the containers are processes of the machine, see package
// runtime/process. It is that of an agent without a configuration, a kubeconfig and a container runtime, and of one
// with containerRuntimeEndpoint: embedded. It executes the program again for each container. This package
// imports runtime/process/early, so a program does not reach main then, and need not call process.Init.
//
// # What it does to the process and the machine
//
// A kubelet on a container runtime makes the settings that kubelet makes: the OOM score and the open files of the
// process, and parameters of the kernel. [Options.Runtime] has it make those only that are given. Requests of a client
// to profile contention set the rate of the process. The command exec -t watches the size of the terminal (SIGWINCH).
package kubelet
