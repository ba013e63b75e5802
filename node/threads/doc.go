// Package threads keeps an agent alive at the limit of processes of its own cgroup.
//
// Threads count as processes in the limits of the kernel: pids.max of a cgroup, which is TasksMax of a unit of systemd,
// and RLIMIT_NPROC of a user. A program in Go ends with "failed to create new OS thread" if it needs one more thread
// and there can be none. It needs one for each system call that blocks, such as a write to a slow disk. At the limit,
// an agent ends with the start of the next pods, although it starts no process for them.
//
// # Vocabulary
//
// A limit is a number of processes and threads that the kernel allows together. Its room is what is left of it. The
// reserve is a number of threads that exist and do nothing. Go never ends an idle thread, and uses it before it makes a
// new one.
//
// # Embedding
//
// A program makes a [Reserve] early in main, and gives it to the agent, as a component:
//
//	reserve, err := threads.New(threads.Options{Logger: log})
//	if err != nil {
//		return err
//	}
//	reserve.Fill()
//	…
//	opts.Join = append(opts.Join, reserve)
//
// # Guarantees
//
//   - A process without such a limit, as root with TasksMax=infinity, makes no thread and watches nothing.
//   - A reserve never takes the last of the room.
//   - A thread that is idle takes about 25 kB of the memory of the process, and no CPU time.
//   - A small room is logged once, when the reserve is filled. A limit of a cgroup that is reached later is logged
//     once, when the kernel signals it; nothing is read before. With version 1 of cgroups, of which not all kernels
//     signal it, a file is read each 30 s.
//   - More system calls that block at once than there are threads still end the program. The limit is what has to be
//     raised; the log says so.
//   - A limit that is set after Fill is not seen. On other systems than Linux nothing is done.
package threads
