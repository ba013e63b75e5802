// Package process is a container runtime that needs nothing installed: an embedded
// CRI v1 server whose containers are processes of the host.
//
//	func main() {
//		process.Init() // first: the server executes this program again for each container
//		...
//	}
//
//	server, err := process.New(process.Options{Dir: "/var/lib/agent/process", Logger: log})
//	go func() { errs <- server.Run(ctx) }()
//	rt, err := cri.Dial(ctx, server.Endpoint(), cri.Options{Logger: log})
//
// It serves RuntimeService and ImageService on a unix socket of mode 0600, so an agent
// comes to it the same way as to containerd, and crictl works with it. It needs Linux, and neither
// root nor a network. Elsewhere it builds, and [New] returns [ErrNotSupported].
//
// # Vocabulary
//
//   - A sandbox is a record: no process runs for it. Its addresses are the host's.
//   - A container is a process tree: its command, in a session and a process group of
//     its own, and all that descends from it.
//   - The supervisor of a container is the parent of its tree: this program, executed
//     again by the server under the name "kubeletkit-supervisor". [Init], called first in main, runs it.
//   - A container's directory, in Dir/containers, has its record and its supervisor's files;
//     package supervise lists them.
//
// # What a container gets
//
//   - Command, args, environment and working directory ("/" by default, which must exist). The
//     environment is that of the spec, with PATH of the server, HOME, HOSTNAME and
//     KUBELETKIT_CONTAINER_ID; nothing else of the server's environment.
//   - A log in CRI's format; lines above 16 KiB are cut into parts. ReopenContainerLog loses no line. A log
//     that cannot be written, on a full disk, loses lines; the container does not wait.
//   - With root: runAsUser, runAsGroup, supplemental groups. Without: only the
//     server's own user and group, and anything else is refused.
//   - allowPrivilegeEscalation: false (no_new_privs), an OOM score, a terminal, an input.
//   - CPU, memory and process limits where cgroups can be written, of version 1 or 2 or both. With
//     version 2 the kernel passes controllers on only from a cgroup without processes: with systemd, use
//     Delegate=yes and let [Options].CgroupRoot name a cgroup beside the server's own. Where a
//     limit is not enforced the container's status says so, in its message while it runs.
//     UpdateContainerResources changes limits while the container runs, and is refused for those for which it has
//     no cgroup.
//
// # What it cannot give
//
// Refused with InvalidArgument, since the container would not work or do harm: no
// command (images have no entry point here); mounts at other paths than the
// host's, see below; host ports that differ from the container's; sysctls; user namespaces; a
// seccomp or AppArmor profile of one's own, unless privileged; CDI devices and devices at other paths; image volumes;
// and without root privileged, added capabilities, and other users.
//
// Warned of, in the status, and in the log once for each kind: a network of the pod's own, its DNS
// configuration, read-only root and read-only mounts, dropped capabilities (with root), the default
// seccomp profile, SELinux options, groups that cannot be had, limits that cannot be enforced.
//
// Not there and not warned of, since every container asks for them: namespaces of the pod's own for
// host name, process IDs and IPC, masked paths of /proc, /etc/hosts, /etc/hostname and /etc/resolv.conf, huge page
// limits. Processes see the host as any process of their user does.
//
// This isolates nothing. It is for trusted programs, for development and for devices
// without a container engine.
//
// # Mounts
//
// Nothing is mounted. A mount whose container path is its host path, or leads to the same file, is
// there already. The termination message is left in the file that $TERMINATION_MESSAGE_PATH names.
// A service account's token is found by [MountEnv]. All others are refused, because a program that
// writes to /data would write to the host's /data without anyone noticing, unless the pod has the
// annotation [MountsAnnotation] "env": it says that its programs look for the path in the environment,
// for a mount at /data in $MOUNT_DATA.
//
// # Images
//
// The image is the host, whatever its name: every image is there, a pull succeeds at once, those pulled are
// listed. An image that was removed is absent until it is pulled again. Its user is the server's, so
// runAsNonRoot is refused by clients when the server is root and no runAsUser is given.
//
// # Guarantees
//
//   - When a container has ended, nothing of it is left: also what has left its session, has lost its
//     parent, ignores signals or forks all the time. The supervisor is a subreaper, kills all below it
//     until the kernel says that it has no child, and writes the exit down only then. When the command ends the
//     container has; daemons that it leaves behind are killed.
//   - StopContainer sends the stop signal to the command's process group, and SIGKILL to everything
//     after the timeout. A call that is cancelled before leaves the container running.
//   - Containers and their supervisors outlive the server, also its death by SIGKILL. The
//     next server on the directory finds them, with the exits that happened meanwhile. A supervisor is known by a
//     file lock that it holds for its life; a process is signalled only if its start time and the boot ID agree with the record,
//     so never one that has got its pid; of the process groups of what is killed without a supervisor, see below, that is not sure.
//   - If a supervisor is killed, its container is reported as exited with code 255 and
//     reason Unknown, and the tree is killed, also if it forks all the time: by cgroup where there is one, by
//     session, and by the mark in the environment. They are stopped with their process groups, and killed when their children were found. It
//     ends when a look at all processes has found nothing and no process has come or gone meanwhile, or, since
//     on a busy machine one always does, when ten looks in a row have found nothing. Without a
//     cgroup, a process that has both left its session and cleared its environment gets away then, unless its
//     parent is still there; one that the agent may not signal always does; and so may one that looks have never met, of a chain of processes that end as
//     soon as they have forked.
//   - Files of state are replaced atomically. One that is damaged or foreign is renamed to
//     *.bad and logged; a container whose record is lost is killed.
//   - A second server on a directory is refused ([ErrInUse]).
//   - Stop and remove succeed for what does not exist; a status of it is NotFound.
//   - Events are never left out: a reader that lags behind by 1024 gets an error.
//   - Exec, attach and port-forward are served on 127.0.0.1, each by a token that is good once, over
//     SPDY, and over WebSocket by its protocols up to v4.channel.k8s.io. A client that offers newer ones only is
//     refused before its token is used up, so that it can come again with SPDY, as kubectl does. A command that is
//     executed is killed when its client goes.
//     Sandboxes do not separate ports: forwarding reaches any port of the host's loopback.
//
// With systemd, KillMode=process keeps containers alive when the agent's service is restarted.
//
// # Cost
//
// A supervisor in minikubelet has about 3.4 MB of memory of its own, 5.4 MB when its
// container writes much, and 7 threads; the rest of its resident memory is shared with the server. A third
// of that, and 3 ms of each start, is what the program's packages do when they are initialised, which
// is before Init: it pays to keep that small. docs/performance.md has the cost of a start. Statistics come from cgroups, or else from one pass over /proc, where
// shared pages count for each process, and I/O is not counted.
//
// # critest
//
// The CRI validation suite of kubernetes-sigs/cri-tools, v1.36.0, was run by hand on 2026-11-21 with the
// server as root on Linux with cgroups of version 1: of 122 specs 59 pass, 39 fail, and 24
// are skipped (AppArmor, user namespaces, recursive read-only mounts, benchmarks). Suite and
// server had mount, UTS and PID namespaces to themselves, because some specs set the host's name and one looks
// for any process "sleep"; busybox's top was first in PATH, since that of procps ends without a terminal.
// Not as root it was not run.
//
// These cannot apply to processes of the host:
//
//   - 13 give no command and rely on the image's: port-forward (2), port mapping to a container port, preserved
//     attributes, several containers in a pod (3), image identifiers across the API, PID namespaces (3) and
//     no_new_privs (2). They are refused before they come to what they are about.
//   - 6 need what is in an image: its user, its groups, that names stand for the same image.
//   - 6 need a root file system or mount namespace of its own: read-only mounts and root, masked
//     and read-only paths, mount propagation (rprivate, rslave).
//   - 6 need other namespaces: host name, DNS configuration, host port unlike the container's, IPC, sysctls (2).
//   - 1 wants a pull to run into a timeout of 1 ms; here it is done before.
//   - 2 need brctl, which the host did not have: privileged, and an added capability. "Privileged is false"
//     passes for the same reason only, and says nothing.
//
// These fail though a host process could have it; it is not implemented: dropped capabilities (2) and
// seccomp profiles (3).
package process
