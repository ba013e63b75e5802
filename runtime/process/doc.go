// Package process is a container runtime that needs nothing installed: a CRI v1 server
// in the agent's own process, whose containers are processes of the host.
//
//	func main() {
//		process.Init() // first: the server executes this program again for each container
//		...
//		rt, err := process.Start(ctx, process.Options{Dir: "/var/lib/agent/process", Logger: log})
//		...
//		defer rt.Close() // containers keep running
//		agent, err := kubeletkit.New(kubeletkit.Options{Runtime: rt, NodeName: "edge-7"})
//	}
//
// [Start] returns a runtime that can be used at once. [Open] opens the server alone, for clients of your own.
//
// The server offers RuntimeService and ImageService on a unix socket with mode 0600. An
// agent uses it like containerd, and crictl works with it. It needs Linux, but neither
// root nor a network. On other systems the package compiles, and [Open] returns
// [ErrNotSupported].
//
// It isolates nothing. It is for trusted programs, for development, and for devices
// without a container engine.
//
// # Vocabulary
//
//   - A sandbox is a record. No process runs for it. Its addresses are those of the host.
//   - A container is a process tree: its command, which leads a session and a process
//     group, and all descendants of the command.
//   - A container's supervisor is the parent of its tree. It is this program, which the
//     server executes again under the name "kubeletkit-supervisor", or the one in
//     [Options].Supervisor. Under this name [Init], which main calls first, runs the supervisor.
//   - A container's directory, in Dir/containers, has its record and the files of its
//     supervisor. The documentation of package supervise lists them.
//
// # What a container gets
//
//   - Command, arguments, environment and working directory. The working directory must
//     exist; the default is "/". The environment is that of the spec, with the PATH of the
//     server, HOME, HOSTNAME, KUBELETKIT_CONTAINER_ID, and KUBELETKIT_CONTAINER_KEY with a
//     secret by which the server finds the processes of the container. It has nothing else of
//     the server's environment.
//   - A log in CRI's format. Lines longer than 16 KiB are split into parts.
//     ReopenContainerLog loses no line. With [Options].LogMaxSize, the supervisor, which writes the log,
//     rotates it before it exceeds the limit, also while no server runs. If the log cannot be written, as on a full
//     disk, lines are lost and the container does not wait.
//   - With root: runAsUser, runAsGroup and supplemental groups. Without runAsGroup, a user
//     that does not exist on the host has group 65534, not 0 as in container runtimes: group 0
//     is that of the host. Without root, a container runs as the server's user and group;
//     other ones are refused.
//   - allowPrivilegeEscalation: false (no_new_privs), an OOM score, a terminal, an input.
//   - Limits of CPU, memory and processes, where the server can write cgroups of version 1
//     or 2, or both. Each pod has a cgroup, with the limit of its processes, its CPU weight and, if all
//     of its containers have a limit of CPU or memory, the sum of these; each container has one in
//     it. If a limit is not enforced, the status message
//     of the running container has the reason. UpdateContainerResources and
//     UpdatePodSandboxResources change limits of a running pod. They refuse a limit without a cgroup.
//
// With version 2, the kernel enables controllers only below a cgroup without processes. With root, pods are
// in the cgroup "/kubeletkit"; they stay there when systemd starts the agent again. Without root, they are beside the
// server's own cgroup if that is delegated (systemd: Delegate=yes and DelegateSubgroup=); otherwise there are no
// limits. No pod is below "kubepods": a kubelet on the same machine would kill it. [Options].CgroupRoot names another
// cgroup.
//
// # What a container does not get
//
// The following is refused with InvalidArgument, because the container would not work or
// would do harm:
//
//   - no command, since there is no image with an entry point;
//   - a mount at another path than that of the host, see below;
//   - a host port that differs from the container port;
//   - sysctls, user namespaces, CDI devices, devices at other paths, image volumes;
//   - a localhost seccomp or AppArmor profile, unless the container is privileged;
//   - without root: privileged, added capabilities, other users.
//
// The following has no effect, with a warning in the status and, once for each kind, in
// the log: a network of the pod's own, its DNS configuration, read-only root file systems
// and mounts, dropped capabilities (with root), the default seccomp profile, SELinux
// options, groups that the server may not set, limits that cannot be enforced. Networks,
// read-only mounts and, if [Server.LimitsPods] is false, limits are in the log with
// verbosity 1 only: no container has them, and a program can say so at its start.
//
// The following has no effect and no warning, because every container requests it:
// namespaces for the host name, process IDs and IPC, masked paths of /proc, /etc/hosts,
// /etc/hostname and /etc/resolv.conf, limits of huge pages. A container sees the host as
// any process of its user does.
//
// # Mounts
//
// Nothing is mounted. A mount whose container path is its host path, or leads to the same
// file, exists already. The path of the termination message is in
// $TERMINATION_MESSAGE_PATH. The path of a service account's token is in the variable of
// [MountEnv].
//
// Any other mount is refused: a program that writes to /data would write to the host's
// /data. If the pod has the annotation [MountsAnnotation] with the value "env", its
// programs find the paths in the environment instead, that of a mount at /data in
// $MOUNT_DATA. So a program has the files of its config maps, secrets and tokens.
//
// With the value "link" there is a symbolic link to the host path at the container path, for
// containers of the server's own user. The directory above must exist, and nothing may exist at
// the path; two running pods cannot have a link at the same path. The links of a pod are removed
// with its sandbox, or by the next server.
//
// With root, a container of another user must pass through the directories of the agent to
// reach its volumes. [Options].AgentDir lets it, by ACLs; see there.
//
// # Images
//
// The image is the host, whatever its name is. Every image exists and a pull succeeds at
// once; ListImages returns the images that were pulled. An image that was removed does
// not exist until it is pulled again. The user of an image is that of the server. So a
// client refuses runAsNonRoot without runAsUser if the server runs as root.
//
// The status of the server has the condition of [runtime.Features].HostProcesses. So an agent emits
// no events of pulls and none of a missing cluster DNS, and its images have the size 0. In CRI the
// size is 1, because other clients refuse 0.
//
// # Guarantees
//
//   - When a container has ended, none of its processes is left. That includes processes that
//     have left their session, have lost their parent, ignore signals, or fork all the time.
//     The supervisor is a child subreaper. It kills its descendants until the kernel reports
//     that it has no child, and only then records the exit. A container ends when its command
//     ends; daemons that the command has started are killed.
//   - What a container, or a command of exec, has written before its end reaches its log and its
//     clients, however busy the machine and however slow a client of exec is. An attached client that
//     reads nothing for 2 s is detached. Of what processes write that a command of exec leaves
//     behind, clients get that of 200 ms, or at most 1 MiB.
//   - StopContainer sends the stop signal to the process group of the command, and SIGKILL
//     to everything after the timeout. If the call is cancelled before, the container
//     keeps running.
//   - Containers and supervisors keep running when the server ends, also when it is
//     killed. The next server with the same directory finds them, and the exits in
//     between. A file lock shows that a supervisor lives. A process is signalled only if
//     its start time and boot ID match, so a process that was given the same pid later is
//     not. A process group is signalled only while a process of it matches. From Linux 6.9
//     on, that is certain for a group whose leader lives; otherwise it is checked right
//     before the signal.
//   - A supervisor is not in the memory cgroup of its container, not even while it executes a command of root. A
//     container at its memory limit ends as OOMKilled, or the kernel kills a command of exec in it: that has exit code
//     137, and its error output ends with a line that begins with OOMKilled. The supervisor traces a command until its
//     first instruction for that (ptrace(2)). A command of another user than root is not traced, since a set-user-ID
//     program would lose its privileges, and where nothing may be traced (ptrace_scope 3 of Yama) none is: the thread
//     of the supervisor then enters a cgroup of version 1 for a moment, as limits matter more.
//   - If a supervisor is killed, its container is reported as exited with code 255 and
//     reason Unknown, and its processes are killed. They are found by cgroup, by session,
//     and by the variable in their environment; they are stopped first, and killed when
//     their children were found. The search ends when it finds nothing while no other
//     process starts or ends, or finds nothing ten times in a row. It can miss three kinds of
//     processes: a process that has no cgroup, has left its session, has cleared its
//     environment and has lost its parent; a process that the server may not signal; and a
//     process in a chain in which each one ends as soon as it has forked.
//   - A stop or a removal needs no space on the disk. The record of an end is written into a block
//     that is reserved before the command is executed. If the stop of a sandbox cannot be
//     recorded, that is logged, and the sandbox is ready to the next server, without containers
//     that run. A file system that does not write in place, such as btrfs with copy on write, may
//     have no room for the end of a container: its processes have ended, and a stop takes up to 20 s.
//   - The cgroups of a pod are removed when its sandbox is stopped, and the cgroup above them when the server is
//     closed and it is empty. Their names begin with a hash of Options.Dir, so that [CleanUp], and the next server,
//     find those that are left when the directory was deleted, and end what runs in them.
//   - State files are replaced atomically. A file that is damaged is removed and logged, one
//     that does not belong there is ignored and logged. A container whose record is lost is
//     killed.
//   - State files have mode 0600 in a directory of mode 0700, and are not encrypted. They
//     have the environment of each container, with the values of secrets in it: its
//     supervisor needs them, and outlives the server.
//   - A second server with the same directory is refused ([ErrInUse]) after 2 s: the lock of a
//     server that was killed ends soon.
//   - A stop or a removal of something that does not exist succeeds; its status is NotFound.
//   - No event is left out: a reader that is 1024 events behind gets an error.
//   - Exec, attach and port-forward are served on 127.0.0.1. Each has a token that is valid
//     once. The protocols are those of a [runtime.Streamer] in package server/streams, with the
//     same limits. A client of a WebSocket that offers none of them is refused before its token
//     is used, so that it can fall back to SPDY, as kubectl does. A command is killed when its
//     client disconnects. Port forwarding reaches every port of the host's loopback address.
//
// With systemd, KillMode=process keeps the containers running when the agent's service is
// restarted.
//
// # Cost
//
// A supervisor in minikubelet has about 2.2 MB of memory of its own, 2 MB more if its
// container writes much, and 7 threads. The rest of its resident memory is shared with the
// server. Most of that memory, and of the CPU time of a start, is for the start of the program
// and the initialisation of its packages, which come before Init. Set [Options].Supervisor to a
// small program, or import package early, which calls Init before most packages are initialised.
// docs/contribute/performance.md has the cost of a start.
//
// A pod has its cgroups from its first container on. They cost a start about 0.1 ms, and a pod that runs nothing.
//
// Statistics come from cgroups. Without cgroups they come from one pass over /proc, which
// counts shared pages for each process and does not count I/O.
//
// # critest
//
// The CRI validation suite of kubernetes-sigs/cri-tools v1.36.0 was run by hand on
// 2026-11-21, with the server as root on Linux with cgroups of version 1. Of 122 specs, 59
// pass, 39 fail and 24 are skipped (AppArmor, user namespaces, recursive read-only mounts,
// benchmarks). The suite and the server had mount, UTS and PID namespaces of their own,
// because some specs set the name of the host and one looks for any process "sleep".
// busybox's top was first in PATH, since the one of procps needs a terminal. The suite was
// not run without root.
//
// These failures are inherent in processes of the host:
//
//   - 13 specs give no command and use that of the image: port-forward (2), port mapping to
//     a container port, preserved attributes, several containers in a pod (3), image
//     identifiers across the API, PID namespaces (3) and no_new_privs (2). They are refused
//     before they test anything.
//   - 6 need the content of an image: its user, its groups, names for the same image.
//   - 6 need a root file system or mount namespace: read-only mounts and root, masked and
//     read-only paths, mount propagation (rprivate, rslave).
//   - 6 need other namespaces: host name, DNS configuration, a host port that differs from
//     the container port, IPC, sysctls (2).
//   - 1 requires that a pull exceeds a timeout of 1 ms; a pull here is faster.
//   - 2 need brctl, which the host did not have: privileged, and an added capability.
//     "Privileged is false" passes for the same reason, and shows nothing.
//
// The others are not implemented: dropped capabilities (2) and seccomp profiles (3).
package process
