// Package supervise has the supervisor of a container, and the code that the server and the
// supervisor share. A supervisor is a small process: the server's own program, executed
// again. It is an ancestor of every process of its container.
//
// # Vocabulary
//
//   - The tree is all descendants of the supervisor: the container's command, the
//     processes that it has forked, and commands that are executed in the container. The
//     supervisor is a child subreaper, so a process stays in the tree when its parent
//     dies, in whatever session it is.
//   - The command is the first process of the container. It leads its session and its
//     process group. When it ends, the container has ended, and the rest is killed.
//   - The directory is that of the container. It is the supervisor's working directory.
//
// # Files in the directory
//
//   - lock is locked with flock(2) by the server, and the supervisor inherits the open
//     file as its error output. It is locked exactly as long as the supervisor lives.
//   - container.json is the record that the server writes. Its field "spec" has what
//     the supervisor runs; see [Spec].
//   - state.json, written by the supervisor, has the processes; see [State].
//   - exit.json, written by the supervisor, has the end of the container; see [Exit]. It is
//     written when no process of the tree is left.
//   - exit.json.reserved, made before the command is executed, has the space of exit.json. The
//     end of a container is written into it, and it is renamed, because the disk may be full.
//   - ctl.sock accepts requests; see [Request].
//
// The other files are written under a temporary name and renamed. exit.json is synced: a container
// that has ended must not run again after a power loss. The server syncs its record and
// state.json, while the container runs. The other files are of no use after a crash.
//
// # Start
//
// The server executes its own program under the name [Arg0]. Under this name, [Init], which
// the program's main function calls first, runs the supervisor and does not return. Two
// checks find a program that does not call Init: [Initialized], before anything is
// executed, and the greeting, the first byte that a supervisor writes.
package supervise
