// Package supervise holds what a container's supervisor and the server agree on,
// and the supervisor itself: a small process, the server's own binary executed
// again, that is the parent of everything a container runs.
//
// # Vocabulary
//
//   - The tree is all that descends from the supervisor: the container's command, what
//     it has forked, and commands executed in it. The supervisor is a child subreaper,
//     so a process whose parent has died stays in the tree, in whatever session it is.
//   - The command is the container's first process, the leader of its session and its
//     process group. When it ends the container has ended, and the rest is killed.
//   - The directory is the container's, and the supervisor's working directory.
//
// # Files in the directory
//
//   - lock is locked (flock) by the server, which hands the open file down: it stays
//     locked as long as the supervisor lives and not a moment longer.
//   - spec.json, by the server, says what to run; see [Spec].
//   - state.json, by the supervisor, says what runs; see [State].
//   - exit.json, by the supervisor, says how it ended; see [Exit]. It is written when
//     nothing of the tree is left.
//   - ctl.sock takes commands; see [Request].
//   - supervisor.err has what a supervisor that failed has said.
//
// Files are written under another name and renamed. They are not synced: when the
// machine goes down, what they tell of is gone as well.
//
// # How it starts
//
// The server executes its own program again under the name [Arg0]. Under that name
// [Init], which the program's main function calls first, runs the supervisor and does not
// return. A program that does not call Init is recognised twice: the server refuses to
// start in it, and a process that does not write the greeting is killed.
package supervise
